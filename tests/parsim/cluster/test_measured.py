from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.errors import ScenarioError

GOOD = (
    "{collective: all_reduce, ranks: 8, nodes: 1, latency: 28us, bandwidth: 280GB/s, ramp: 7us, "
    "link: 450GB/s, least: 32KiB, most: 16GiB, source: mine}"
)


def written(tmp_path: Path, *curves: str, head: str = "") -> Path:
    lines = "".join(f"      - {curve}\n" for curve in curves)
    text = f"systems:\n  mine:\n    from: dgx-h100\n{head}    curves:\n{lines}"
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def test_curves_are_read_in_si_units(tmp_path: Path) -> None:
    (first,) = load_catalog([written(tmp_path, GOOD)]).systems["mine"].curves
    assert (first.collective, first.ranks, first.nodes, first.source) == (
        "all_reduce",
        8,
        1,
        "mine",
    )
    assert (first.latency, first.bandwidth, first.ramp) == (28e-6, 280e9, 7e-6)
    assert (first.link, first.node_bandwidth) == (450e9, None)
    assert (first.least, first.most) == (32 * 1024.0, 16 * 2.0**30)


def test_a_system_takes_its_parents_curves_or_none(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("systems:\n  a: {from: dgx-h100}\n  b: {from: dgx-h100, curves: null}\n")
    catalog = load_catalog([path])
    assert catalog.systems["a"].curves == catalog.systems["dgx-h100"].curves != ()
    assert catalog.systems["b"].curves == ()


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (GOOD.replace("ramp: 7us, ", ""), "has a curve without ramp"),
        (GOOD.replace("28us", "28"), "latency bare number 28; write it with a unit"),
        (GOOD.replace("280GB/s", "280us"), "bandwidth '280us' is not a bandwidth"),
        (GOOD.replace("280GB/s", "0GB/s"), "bandwidth '0GB/s' must be above 0"),
        (GOOD.replace("ranks: 8", "ranks: 8.5"), "ranks '8.5' must be a whole number"),
        (GOOD.replace("ranks: 8", "ranks: 1"), "ranks=1, which must be at least 2"),
        (GOOD.replace("nodes: 1", "nodes: 3"), "has a curve without node_bandwidth"),
        (GOOD.replace("all_reduce", "all_sum"), "'all_sum' is no collective; allowed: all_reduce"),
        (GOOD.replace("ramp", "rmap"), "unknown field 'rmap' (did you mean 'ramp'?)"),
        ("3", "must be a mapping"),
    ],
)
def test_impossible_curves_are_refused(tmp_path: Path, curve: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_catalog([written(tmp_path, curve)])
    assert message in str(error.value)
    assert "mine.yaml:5:" in str(error.value)


def test_two_curves_of_one_group(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="two curves of all_reduce on 8 ranks of 1 nodes"):
        load_catalog([written(tmp_path, GOOD, GOOD)])


def test_unknown_words(tmp_path: Path) -> None:
    for head, message in (
        ("    library: nccl-9\n", "unknown library 'nccl-9'.*allowed: nccl-2.23, nccl-2.19"),
        ("    intra: {generation: rubin}\n", "unknown generation 'rubin'; allowed: volta, ampere"),
    ):
        with pytest.raises(ScenarioError, match=message):
            load_catalog([written(tmp_path, GOOD, head=head)])


def test_processors_use_gloo_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("systems:\n  mine: {from: cpu, library: null}\n  other: {from: dgx-h100}\n")
    catalog = load_catalog([path])
    assert catalog.systems["mine"].library == "gloo"
    assert catalog.systems["other"].library == "nccl-2.23"


def test_every_shipped_curve_tells_its_source() -> None:
    curves = [c for system in load_catalog().systems.values() for c in system.curves]
    assert len(curves) >= 20
    assert all("make fit-collectives" in curve.source for curve in curves)
