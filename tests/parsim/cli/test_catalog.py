"""`parsim catalog show` and `import`: tables, JSON, pictures, and every kind of bad input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from parsim.model.graph.catalog import SIZED, SIZED_NAMES, is_network
from parsim.plan.strategies import STRATEGY_KINDS
from parsim.report.text.catalog import catalog_rows, catalog_view
from tests.commands import GPT3, ROOT, SMALL, Cli, settings

# ------------------------------------------------------------------------------------- show


def test_show_prints_links_and_bisection(cli: Cli) -> None:
    done = cli("catalog", "show", "dgx-a100", "--nodes", 2)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "2 x NVIDIA DGX A100 with 8x HDR"
    assert lines[2].split() == ["nvlink", "gpu", "-", "nvswitch", "16", "300", "246", "1.7"]
    assert "16 devices; bisection 200.0 GB/s from ranks 0..7 to 8..15" in lines


def test_show_of_a_file_says_how_it_is_named(cli: Cli) -> None:
    done = cli("catalog", "show", "mine.yaml")
    assert done.code == 2
    assert "SYSTEM is an id, not a file; use --catalog mine.yaml" in done.err


def test_show_as_json(cli: Cli) -> None:
    document = cli("catalog", "show", "dgx-a100", "--json").document
    assert list(document) == ["schema_version", "system", "devices", "links", "bisection_gb_per_s"]
    assert document["system"] == "dgx-a100"
    assert document["devices"] == 8
    assert document["bisection_gb_per_s"] == 1200.0
    assert document["links"][0] == {
        "from": "gpu:0",
        "to": "nvswitch:0",
        "class": "nvlink",
        "bandwidth_gb_per_s": 300.0,
        "latency_us": pytest.approx(1.7),
    }
    ends = {(link["from"], link["to"]) for link in document["links"]}
    assert {(b, a) for a, b in ends} == ends


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_show_draws_the_same_bytes_each_time(cli: Cli, tmp_path: Path, suffix: str) -> None:
    pictures = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in pictures:
        assert cli("catalog", "show", "dgx-1v", "-o", path).code == 0
    first, second = (path.read_bytes() for path in pictures)
    assert first == second
    assert len(first) > 5000


def test_a_failed_interface_narrows_the_bisection(cli: Cli) -> None:
    words = ("catalog", "show", "dgx-h100", "--nodes", 2, "--json")
    whole = cli(*words).document["bisection_gb_per_s"]
    less = cli(*words, "--failed", "nic:0.3").document["bisection_gb_per_s"]
    assert (whole, less) == (400.0, 350.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dgx-h10"], "unknown system 'dgx-h10' (did you mean 'dgx-h100'?)"),
        (["cpu", "--nodes", "2"], "system cpu has no network, so nodes=2 cannot be joined"),
        (["cpu", "--nodes", "0"], "Invalid value for '--nodes'"),
        (["cpu", "-o", "x.pdf"], "suffix '.pdf'; allowed: .png, .svg"),
        (["dgx-1v", "--failed", "nic:0.7"], "there is no part 'nic:0.7'"),
        (["dgx-1v", "--failed", "gpu:0->gpu:7"], "no cable joins gpu:0 and gpu:7"),
        (["a100-pcie-node", "--failed", "pcie:0.1"], "gpu:2, gpu:3 cannot reach gpu:0"),
    ],
)
def test_show_refuses(cli: Cli, words: list[str], message: str) -> None:
    done = cli("catalog", "show", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


# ---------------------------------------------------------------- topologies in catalog files

HEAD = """systems:
  mine:
    from: cpu
    devices_per_node: 2
    topology:
"""
GOOD = "      - {from: gpu:0, to: gpu:1, class: nvlink, bandwidth: 25GB/s, latency: 1us}\n"


def test_a_topology_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(HEAD + GOOD)
    document = cli("catalog", "show", "mine", "--catalog", tmp_path / "my.yaml", "--json").document
    assert document["bisection_gb_per_s"] == 25.0
    assert [link["from"] for link in document["links"]] == ["gpu:0", "gpu:1"]


WRONG = {
    "unknown link class": (
        GOOD.replace("nvlink", "nvlnk"),
        ":6:41 systems.mine.topology.class unknown link class 'nvlnk' (did you mean 'nvlink'?); "
        "allowed: nvlink, c2c, pcie, cpu, shared-memory, nic, spine, cable, global",
    ),
    "negative capacity": (
        GOOD.replace("25GB/s", "-25GB/s"),
        ":6:60 systems.mine.topology.bandwidth '-25GB/s' is not a bandwidth: "
        "it must be finite and at least 0",
    ),
    "no capacity": (
        GOOD.replace("25GB/s", "0GB/s"),
        ":6:60 systems.mine.topology.bandwidth '0GB/s' must be above 0",
    ),
    "bare number": (
        GOOD.replace("25GB/s", "25"),
        ":6:60 systems.mine.topology.bandwidth bare number 25; write it with a unit, e.g. '25GB/s'",
    ),
    "disconnected": (
        GOOD + GOOD.replace("gpu:0", "pcie:0").replace("gpu:1", "host:0"),
        ":6:7 systems.mine.topology is disconnected: no cables lead from gpu:0 to pcie:0",
    ),
    "cable twice": (
        GOOD + GOOD.replace("from: gpu:0, to: gpu:1", "from: gpu:1, to: gpu:0"),
        ":7:9 systems.mine.topology joins gpu:1 and gpu:0 again; first on line 6; "
        "write one cable with the sum of their rates",
    ),
    "missing device": (
        GOOD.replace("gpu:1", "nvswitch:0"),
        ":6:7 systems.mine.topology has no cable of gpu:1; devices_per_node is 2",
    ),
    "device beyond": (
        GOOD + GOOD.replace("gpu:0", "gpu:2"),
        ":6:7 systems.mine.topology names gpu:2, but devices_per_node is 2; "
        "allowed: gpu:0 to gpu:1",
    ),
    "to itself": (
        GOOD.replace("gpu:1", "gpu:0"),
        ":6:9 systems.mine.topology has a cable from gpu:0 to itself",
    ),
    "no part": (
        GOOD.replace("gpu:1", "gpu1"),
        ":6:27 systems.mine.topology.to 'gpu1' is no part; write KIND:INDEX, e.g. gpu:0; "
        "kinds: gpu, nvswitch, pcie, host, nic, memory, switch",
    ),
    "unknown field": (
        GOOD.replace("latency", "delay"),
        ":6:68 systems.mine.topology.delay unknown field 'delay'; "
        "allowed: from, to, class, bandwidth, latency, efficiency, source",
    ),
    "missing field": (
        GOOD.replace("class: nvlink, ", ""),
        ":6:9 systems.mine.topology has a cable without class",
    ),
    "no list": (
        "      gpu:0\n",
        ":6:7 systems.mine.topology must be a list of cables, "
        "{from: gpu:0, to: nvswitch:0, class: nvlink, ...}",
    ),
    "efficiency above 1": (
        GOOD.replace("latency: 1us", "efficiency: 1.2"),
        ":6:80 systems.mine.topology.efficiency '1.2' must be a share above 0 and at most 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_in_a_topology(cli: Cli, tmp_path: Path, case: str) -> None:
    text, message = WRONG[case]
    path = tmp_path / "my.yaml"
    path.write_text(HEAD + text)
    done = cli("catalog", "show", "mine", "--catalog", path)
    assert done == (2, "", f"error: {path}{message}\n")


# ----------------------------------------------------------------------- maps and failed parts


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (
            "cluster.placement=[0, 0]",
            "cluster.placement puts ranks 0 and 1 on device 0; each device takes one rank",
        ),
        (
            "cluster.placement=[0, 2]",
            "cluster.placement puts rank 1 on device 2, which is out of range; allowed: 0 to 1",
        ),
        ("cluster.placement=[0]", "cluster.placement places 1 ranks; the cluster has 2 devices"),
        ("cluster.failed=[nic:0.3]", "cluster.failed there is no part 'nic:0.3'"),
    ],
)
def test_placements_and_failures_that_cannot_be(cli: Cli, pair: str, message: str) -> None:
    done = cli("check", SMALL, *settings(pair))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: --set {pair} {message}")


def test_placements_and_failures_that_can_be(cli: Cli, tmp_path: Path) -> None:
    pairs = settings("cluster.placement=[1, 0]")
    assert cli("check", SMALL, *pairs).code == 0
    saved = tmp_path / "best.yaml"
    assert cli("search", SMALL, *pairs, "--save", saved).code == 0
    assert re.search(r"placement:\n +- 1\n +- 0\n", saved.read_text())


@pytest.mark.parametrize("key", ["network.spine.oversubscription", "network.oversubscription"])
def test_the_network_may_be_set_without_the_word_cluster(cli: Cli, key: str) -> None:
    done = cli("simulate", GPT3, *settings(f"{key}=4"), "--json")
    whole = cli("simulate", GPT3, *settings("cluster.network.oversubscription=4"), "--json")
    assert done.code == whole.code == 0
    assert done.out == whole.out
    assert done.document["step_time_s"] > cli("simulate", GPT3, "--json").document["step_time_s"]


def test_rates_are_written_out(cli: Cli) -> None:
    devices = cli("catalog", "devices")
    assert devices.code == 0
    assert "nvfp4 10,000" in " ".join(devices.out.split())
    assert "e+0" not in devices.out


def test_the_list_of_schedules_says_what_each_is(cli: Cli) -> None:
    rows = cli("catalog", "schedules", "--json").document["schedules"]
    assert len(rows) == 23
    assert not [row["id"] for row in rows if row["what"].startswith("Build")]
    assert all(row["what"][0].isupper() or row["what"][0].isdigit() for row in rows)


def test_the_list_of_software_says_what_a_stack_has(cli: Cli) -> None:
    """What docs send readers here for; the table is read at 100 columns."""
    rows = {row["id"]: row for row in cli("catalog", "software", "--json").document["software"]}
    titan = rows["torchtitan"]
    assert titan["schedules"] == ["gpipe", "1f1b", "interleaved_1f1b", "zb_v"]
    assert (titan["zero_stages"], titan["cp_comm_type"]) == ([0, 2, 3], "all_gather")
    assert (titan["compile"], titan["tp_overlap"], titan["kv_heads"]) == (True, False, "whole")
    assert rows["megatron-2022"]["pipeline_zero_stages"] == [0, 1]
    console = Console(width=100, no_color=True)
    with console.capture() as text:
        console.print(catalog_view("software", catalog_rows("software")))
    lines = text.get().splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in rows)
    assert "…" not in "".join(lines)


def test_the_page_of_what_is_modelled_names_every_schedule_and_strategy(cli: Cli) -> None:
    page = (ROOT / "docs" / "modelled.md").read_text(encoding="utf-8")
    schedules = [row["id"] for row in cli("catalog", "schedules", "--json").document["schedules"]]
    assert [name for name in (*schedules, *STRATEGY_KINDS) if f"`{name}`" not in page] == []


def test_models_name_networks_of_any_two_sizes(cli: Cli) -> None:
    told = " ".join(cli("catalog", "models").out.split())
    for name in SIZED_NAMES:
        assert f"{name}, " in told
        assert is_network(name)
    assert {name.rsplit("-", 2)[0] for name in SIZED_NAMES} <= SIZED.keys()
