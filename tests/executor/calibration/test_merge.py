"""Merged calibrations: all points of both, in any order; other devices are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from executor.calibration.cases.kinds import ALL_REDUCE, SEND_RECV

pytest.importorskip("torch")

from executor.calibration import merge as module
from executor.calibration.cases.samples import Sample, link_time
from executor.calibration.cases.setting import cases, setting_for
from executor.calibration.conclude import conclude
from executor.calibration.fitting.constants import DEVICE_CONSTANTS, system_constants
from executor.calibration.fitting.earlier_file import Calibration, read_calibration
from executor.calibration.layer_times import layer_times
from executor.calibration.measurements import Measurements
from executor.calibration.merge import merge
from executor.calibration.timing.layers import LayerSample
from executor.devices.machine import DeviceReport
from parsim.cli.app import main
from parsim.cluster.evidence import RecordedStep
from parsim.cluster.hardware import Device, System
from parsim.cluster.measured.layer_kinds import WAITED
from parsim.cluster.reader import load_catalog
from parsim.cost.layer.layers import measured_kind, own_name
from parsim.errors import InputError
from parsim.launch import measuring
from parsim.model.transformer import BLOCK, EXPERT_BLOCK
from parsim.plan import Plan
from tests.executor.launch import fork_runs

CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
SETTING = setting_for(CPU)
CASES = cases(SETTING)
DAY = "2026-11-01"
PLANS = [
    Plan(tp=tp, sequence_parallel=sequence, cp=cp, ep=ep)
    for tp, sequence in ((1, False), (2, False), (2, True))
    for cp, ep in product((1, 2), (1, 2))
]
LAYER_KINDS = {
    f"{measured_kind(plan, layer)}{end}"
    for plan in PLANS
    for layer in (BLOCK, EXPERT_BLOCK, "embedding", "head", own_name(BLOCK, "norm2-gelu"))
    for end in ("", WAITED)
}


def write(
    file: Path, part: slice, slower: float, day: str = DAY, edit: Callable[[str], str] = str
) -> Calibration:
    """A calibration of some of the cases on a device whose kernels take so many times as long."""
    text, today = calibrated(part.start or 0, part.step or 1, slower)
    file.write_text(edit(text.replace(today, day)))
    return read_calibration(file)


@cache
def calibrated(start: int, step: int, slower: float) -> tuple[str, str]:
    """A file's text, and the day in it."""
    true = replace(SETTING.device, gemm_efficiency=0.7, memory_efficiency=0.4)
    kernels = [
        Sample(
            kind=x.kind,
            shape=x.shape,
            seconds=slower * wavy(i) * SETTING.kernels.time(true, x.kind, x.shape),
        )
        for i, x in enumerate(CASES)
    ]
    system = load_catalog().system("cpu")
    sizes = [4.0**i for i in range(6, 14)]
    shapes = [(ALL_REDUCE, {"bytes": size, "ranks": 2.0}) for size in sizes]
    shapes += [(SEND_RECV, {"bytes": size}) for size in sizes]
    links = [
        Sample(kind=k, shape=s, seconds=2 * slower * link_time(system, k, s)) for k, s in shapes
    ]
    layers = [LayerSample(workload, "block", 0.0, 0.0) for workload in SETTING.workloads]
    times = layer_times(system, SETTING.device, SETTING, layers)
    layers = [
        LayerSample(workload.workload, "block", 0.001 + ahead, 0.002 + behind)
        for workload, ahead, behind in zip(layers, times[::2], times[1::2], strict=True)
    ]
    subset = slice(start, None, step)
    measured = Measurements(
        kernels=kernels[subset],
        links=links[subset],
        layers=layers[subset],
        reference=(1.0,),
        notes=(),
    )
    text, document, _ = conclude(SETTING, measured)
    return text, document["device"]["date"]


def wavy(i: int) -> float:
    return 1.0 + 0.1 * (i % 3)


def merged(first: Calibration, second: Calibration, out: Path) -> Calibration:
    out.write_text(merge(first, second)[0])
    return read_calibration(out)


def assert_same(first: Calibration, other: Calibration, rel: float = 1e-4) -> None:
    for name in DEVICE_CONSTANTS:
        assert getattr(first.device, name) == pytest.approx(getattr(other.device, name), rel=rel)
    assert first.system is not None
    assert other.system is not None
    constants = system_constants(first.system), system_constants(other.system)
    assert constants[0] == pytest.approx(constants[1], rel=10 * rel)
    same_points(first.device, other.device, rel)
    same_points(first.system, other.system, 10 * rel)
    assert first.sources == other.sources


def same_points(first: Device | System, other: Device | System, rel: float) -> None:
    assert set(first.residuals) == set(other.residuals)
    for kind, rows in first.residuals.items():
        pairs = zip(sorted(rows), sorted(other.residuals[kind]), strict=True)
        assert all(x == pytest.approx(y, rel=rel) for x, y in pairs), kind


def test_merging_a_file_with_itself_changes_nothing(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", slice(None), 1.0)
    assert_same(merged(first, first, tmp_path / "aa.yaml"), first)


def test_the_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    a = write(tmp_path / "a.yaml", slice(0, None, 2), 1.0)
    b = write(tmp_path / "b.yaml", slice(1, None, 2), 1.3, "2026-11-02")
    ab, ba = merged(a, b, tmp_path / "ab.yaml"), merged(b, a, tmp_path / "ba.yaml")
    assert (tmp_path / "ab.yaml").read_text() == (tmp_path / "ba.yaml").read_text()
    assert_same(ab, ba)
    assert [source[9:19] for source in ab.sources] == [DAY, "2026-11-02"]


def test_curves_of_both_are_kept_and_old_points_are_those_of_pairs(tmp_path: Path) -> None:
    """A file of before groups had sizes has points of bytes alone."""
    first = write(tmp_path / "a.yaml", slice(None), 1.0)
    old = write(tmp_path / "b.yaml", slice(None), 1.0, edit=without_ranks)
    assert first.system is not None
    assert old.system is not None
    assert {len(row) for row in old.system.residuals["all_reduce"]} == {2}
    assert old.system.curves == ()
    result = merged(old, first, tmp_path / "ab.yaml")
    assert result.system is not None
    assert {row[1] for row in result.system.residuals["all_reduce"]} == {2.0}
    (before,), (kept,) = first.system.curves, result.system.curves
    assert (kept.collective, kept.ranks, kept.least) == ("all_reduce", 2, 4.0**6)
    assert kept.most == pytest.approx(4.0**13, rel=1e-5)  # six digits are written
    for size in (4.0**7, 4.0**12):
        times = [
            link_time(x.system, ALL_REDUCE, {"bytes": size, "ranks": 2.0})
            for x in (first, result)
            if x.system
        ]
        assert times[0] == pytest.approx(times[1], rel=1e-3)
    assert kept.bandwidth == pytest.approx(before.bandwidth, rel=0.01)


def test_whole_layers_of_all_kinds_are_merged_as_lines(tmp_path: Path) -> None:
    """Kernels' constants are not moved by them, and no point stands beside a line."""
    usual, named = (
        (
            write(tmp_path / "a.yaml", slice(0, None, 2), 1.0, edit=edit),
            write(tmp_path / "b.yaml", slice(1, None, 2), 1.3, edit=edit),
        )
        for edit in (str, with_all_kinds)
    )
    assert len(named[0].device.residuals) > len(usual[0].device.residuals) + 50
    plain = merged(*usual, tmp_path / "plain.yaml").device
    text, document = merge(*named)
    (tmp_path / "ab.yaml").write_text(text)
    both = read_calibration(tmp_path / "ab.yaml").device
    for name in DEVICE_CONSTANTS:
        assert getattr(both, name) == getattr(plain, name)
    for kind, way in product(LAYER_KINDS, ("forward", "backward")):
        rows, line = both.residuals[f"{kind}_{way}"], plain.residuals[f"block_{way}"]
        assert [where for where, _ in rows] == [where for where, _ in line]
        assert rows == line or WAITED in kind  # waits are one ratio
        assert f"{kind}_{way}" not in document["residuals"]["kernels"]


def with_all_kinds(text: str) -> str:
    """The file whose layers of every kind have the points of its blocks."""
    section = r" +{}block_\w+:\n(?: +- .*\n)+"
    bare = re.sub(section.format("(?:split|sequence)_"), "", text)
    return re.sub(
        section.format(""),
        lambda points: "".join(points[0].replace("block", kind) for kind in sorted(LAYER_KINDS)),
        bare,
    )


def without_ranks(text: str) -> str:
    """The file without its curves and without the ranks of its points, factors as they are."""
    text = re.sub(r"    curves:.*\n(      - .*\n)+", "    curves: null\n", text)
    start, _, rest = text.partition("      all_reduce:\n")
    return start + "      all_reduce:\n" + re.sub(r"(- \[\S+), 2, ", r"\1, ", rest)


def times(first: Calibration) -> dict[tuple[object, ...], float]:
    """Measurements times as the file holds them: ratio x its constants."""
    bare = replace(first.device, residuals={})
    points = {
        (kind, row[:-1]): row[-1] for kind, rows in first.device.residuals.items() for row in rows
    }
    result: dict[tuple[object, ...], float] = {}
    for case in CASES:
        where = tuple(float(f"{x:.6g}") for n, x in case.shape.items() if n != "launches")
        if (case.kind, where) in points:
            seconds = SETTING.kernels.time(bare, case.kind, case.shape)
            result[case.kind, where] = points[case.kind, where] * seconds
    return result


def test_all_times_of_both_are_kept(tmp_path: Path) -> None:
    a = write(tmp_path / "a.yaml", slice(0, None, 2), 1.0)
    b = write(tmp_path / "b.yaml", slice(1, None, 2), 1.3)
    ab = times(merged(a, b, tmp_path / "ab.yaml"))
    known = {**times(a), **times(b)}
    assert len(known) > 150
    assert ab == pytest.approx(known, rel=2e-3)  # launches of a kind are taken to be alike


def test_of_equal_shapes_the_newer_file_counts(tmp_path: Path) -> None:
    old = write(tmp_path / "old.yaml", slice(None), 1.0)
    new = write(tmp_path / "new.yaml", slice(None), 1.5, "2026-11-09")
    for pair_ in ((old, new), (new, old)):
        result = merged(*pair_, tmp_path / "merged.yaml")
        for name in DEVICE_CONSTANTS:
            assert getattr(result.device, name) == pytest.approx(
                getattr(new.device, name), rel=1e-3
            )
        assert result.latest == "2026-11-09"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (" on one core", " on another core", "only calibrations of one device can be merged"),
        (", fp32, torch", ", bf16, torch", "only calibrations of one precision can be merged"),
    ],
)
def test_another_device_or_precision(tmp_path: Path, before: str, after: str, message: str) -> None:
    first = write(tmp_path / "a.yaml", slice(None), 1.0)
    other = write(tmp_path / "b.yaml", slice(None), 1.0, edit=lambda x: x.replace(before, after))
    with pytest.raises(InputError, match=message):
        merge(other, first)


def test_another_torch_is_noted(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", slice(None), 1.0)
    other = write(
        tmp_path / "b.yaml", slice(None), 1.0, edit=lambda x: x.replace("torch 2.", "torch 1.")
    )
    _, document = merge(other, first)
    assert "measured with torch 1." in document["notes"][0]
    assert len(document["merged"]["sources"]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: {}\n", "holds no calibrated device"),
        ("devices:\n  mine: {from: cpu, calibrated: true}\n", "does not say when and on what"),
        ("devices:\n  mine: {from: cpu, memory_efficiency: -1}\n", "must be"),
    ],
)
def test_what_is_no_calibration(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    message: str,
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    words = ["merge", str(file), str(file), "--out", str(tmp_path / "out.yaml")]
    monkeypatch.setattr("sys.argv", words)
    assert module.main() == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measuring is replaced by a file that was measured; merging is the real process."""
    write(tmp_path / "old.yaml", slice(0, None, 2), 1.0)
    write(tmp_path / "new.yaml", slice(1, None, 2), 1.3, "2026-11-02")
    measured = Measurements(kernels=[], links=[], reference=(1.0,), notes=())
    chosen = {"gemm": {"of": 9, "measured": 5}}
    document = {
        **conclude(SETTING, measured)[1],
        "chosen": chosen,
        "groups": {"sizes": []},
        "seconds_of": {"links": 1.0},
        "interval": {"before": 0.5, "expected": 0.01, "after": 0.03},
    }

    def measure(words: list[str], folder: Path, _: Path) -> None:
        assert f"--merge={tmp_path / 'old.yaml'}" in words
        (folder / "device.yaml").write_text((tmp_path / "new.yaml").read_text())
        (folder / "calibration.json").write_text(json.dumps(document))

    monkeypatch.setattr(measuring, "_measure", measure)
    fork_runs(monkeypatch, tmp_path)
    words = ["calibrate", "--merge", str(tmp_path / "old.yaml"), "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "both.yaml")]) == 0
    text = capsys.readouterr().err
    assert "±50.0 % -> ±3.0 % (expected ±1.0 %)" in text
    assert "points were merged to" in text
    files = [tmp_path / f"{name}.yaml" for name in ("both", "old", "new")]
    both, old, new = (read_calibration(file) for file in files)
    assert_same(both, merged(old, new, tmp_path / "again.yaml"))
    assert (tmp_path / "old.yaml").read_text() != (tmp_path / "both.yaml").read_text()


def test_a_merged_file_is_as_sure_as_the_less_sure_one(tmp_path: Path) -> None:
    old = write(tmp_path / "old.yaml", slice(0, None, 2), 1.0)
    new = write(tmp_path / "new.yaml", slice(1, None, 2), 1.0, "2026-11-02")
    run = RecordedStep(
        date=DAY, model="x", plan="y", split="none", sharded=False, ranks=2, n=5,
        forward=1.1, backward=1.1, optimizer=1.1, step=1.1, left=1.0,
    )  # fmt: skip
    missing = {"block": "time over", "sharded": "out of memory"}
    unsure = replace(
        old.device, spreads={"clock": 0.2, "block_forward": 0.01}, unmeasured=missing, steps=(run,)
    )
    surer = replace(new.device, spreads={"clock": 0.1, "block_forward": 0.05})
    text, document = merge(replace(old, device=unsure), replace(new, device=surer))
    (tmp_path / "both.yaml").write_text(text)
    both = read_calibration(tmp_path / "both.yaml").device
    assert both.spreads == {"clock": 0.2, "block_forward": 0.05}
    assert both.unmeasured == {"sharded": "out of memory"}  # blocks are measured, in the new one
    assert both.steps == ()
    assert any("give them again with --from" in note for note in document["notes"])
