"""The command line on a cluster of two kinds of node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.units import format_bytes
from tests.commands import ROOT, Cli

MIXED = str(ROOT / "scenarios" / "llama3-70b-h100-a100.yaml")
ON_EITHER = (
    *("--set", "plan.rank_order=[dp_replicate,dp_shard,pp,cp,tp]"),
    *("--set", "plan.pp=2", "--set", "plan.dp=2", "--set", "plan.stage_layers=null"),
)
"""A replica on either kind of nodes."""
REPLICAS = (*ON_EITHER, "--set", "plan.replica_microbatches=[45,19]")
SHARDS = (*ON_EITHER, "--set", "plan.zero_stage=3")


def test_check_names_the_groups(cli: Cli) -> None:
    done = cli("check", MIXED)
    assert (done.code, done.err) == (0, "")
    assert (
        "cluster  2 x dgx-h100 (fast) + 2 x dgx-a100 (slow): "
        "16 x h100-sxm-80gb + 16 x a100-sxm-80gb" in done.out
    )
    cluster = json.loads(cli("check", MIXED, "--json").out)["cluster"]
    assert (cluster["nodes"], cluster["devices"]) == (4, 32)
    assert cluster["groups"]["slow"] == {
        "system": "dgx-a100",
        "nodes": 2,
        "devices": 16,
        "device": "a100-sxm-80gb",
    }


def test_simulate_says_who_does_what(cli: Cli) -> None:
    done = cli("simulate", MIXED, "--json", "--events")
    document = json.loads(done.out)
    groups = document["rank_groups"]
    assert [
        (group["pipeline_rank"], group["node_groups"], group["layers"]) for group in groups
    ] == [
        (0, ["fast"], 28),
        (1, ["fast"], 28),
        (2, ["slow"], 12),
        (3, ["slow"], 12),
    ]
    assert document["evidence"] is None
    text = cli("simulate", MIXED).out
    assert "who does what" in text
    assert "no published run of nodes of different kinds" in text


def test_batches_by_replica(cli: Cli) -> None:
    document = json.loads(cli("simulate", MIXED, "--json", *REPLICAS).out)
    counts = {(group["devices"][0], group["num_microbatches"]) for group in document["rank_groups"]}
    assert counts == {("h100-sxm-80gb", 45), ("a100-sxm-80gb", 19)}
    assert document["plan"]["replica_microbatches"] == [45, 19]


def test_a_plan_that_fits_only_the_larger_devices(cli: Cli) -> None:
    done = cli(
        "simulate",
        MIXED,
        "--set",
        "cluster.groups.slow.device=a100-sxm-40gb",
        "--set",
        "plan.stage_layers=[20,20,20,20]",
    )
    assert done.code == 3
    assert "a100-sxm-40gb of nodes slow" in done.err


def test_one_rank_is_shown_as_the_fullest(cli: Cli, tmp_path: Path) -> None:
    """The A100s of 40 GB are nearest to their limit; ranks on H100s hold more, of more."""
    changes = (
        "--set",
        "cluster.groups.slow.system=aws-p4d",
        "--set",
        "plan.stage_layers=[25,25,15,15]",
    )
    document = json.loads(cli("simulate", MIXED, "--json", *changes).out)
    fullest = document["fullest_rank"]
    assert fullest["devices"] == ["a100-sxm-40gb"]
    assert fullest["usable_memory_bytes"] == document["usable_memory_bytes"]
    assert fullest["peak_allocated_bytes"] < max(document["peak_allocated_bytes"])
    peak = format_bytes(fullest["peak_allocated_bytes"])
    reserved = format_bytes(fullest["peak_reserved_bytes"])
    text = " ".join(cli("simulate", MIXED, *changes).out.split())
    assert f"memory {peak} of " in text
    assert f"reserved by the allocator {reserved}, " in text
    out = str(tmp_path / "mixed.svg")
    assert f"peak {peak}: fits" in cli("timeline", MIXED, "-o", out, *changes).out
    slow = {"cluster.groups.slow.system": "aws-p4d", "plan.stage_layers": [25, 25, 15, 15]}
    scenario = load_scenario(MIXED, slow)
    headline = simulate(scenario.job, scenario.fixed_plan()).headline
    assert f"{peak} of {format_bytes(fullest['usable_memory_bytes'])}: fits" in headline


def test_search_saves_the_placement(cli: Cli, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    done = cli("search", MIXED, "--top", "2", "--save", str(best), "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert document["counts"]["placed"] > document["counts"]["evaluated"] > 0
    assert document["plans"][0]["plan"]["node_order"]
    again = json.loads(cli("simulate", str(best), "--json").out)
    assert again["step_time_s"] == pytest.approx(document["plans"][0]["step_time_s"], rel=1e-12)
    assert "placements" in cli("search", MIXED, "--top", "1").out


def test_a_timeline_has_a_lane_for_each_kind(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "mixed.json"
    assert cli("timeline", MIXED, "-o", str(out), *REPLICAS).code == 0
    text = out.read_text(encoding="utf-8")
    assert all(name in text for name in ("pp 0 fast x1", "pp 1 slow x1"))


def test_shared_links(cli: Cli) -> None:
    """Slower interfaces of one group, on the command line, slow the step and are the bottleneck."""
    slow = "cluster.groups.slow.network.nic_bandwidth=10Gb/s"
    usual, less = (
        json.loads(cli("simulate", MIXED, "--json", "--contention", *words).out)["contention"]
        for words in ((), ("--set", slow))
    )
    assert 1.0 - 1e-9 <= usual["slowdown"] < 1.01
    assert less["step_time_s"] > usual["step_time_s"]
    assert less["bottleneck"]["class"] == "nic"
    assert less["bottleneck"]["link"].startswith(("nic:2.", "nic:3.", "leaf:0."))
    assert "bottleneck" in cli("simulate", MIXED, "--contention", *REPLICAS).out


def test_failed_parts_are_those_of_the_groups_in_order(cli: Cli) -> None:
    failed = ("--set", "cluster.failed=[nic:3.0]")
    document = json.loads(cli("simulate", MIXED, "--json", *failed, *REPLICAS).out)
    assert document["contention"]["slowdown"] >= 1.0 - 1e-9
    wrong = cli("simulate", MIXED, "--set", "cluster.failed=[nic:4.0]")
    assert wrong.code == 2
    assert "there is no part 'nic:4.0'" in wrong.err


def test_a_search_runs_its_best_on_shared_links(cli: Cli) -> None:
    document = json.loads(cli("search", MIXED, "--json", "--contention", "--top", "2").out)
    assert len(document["contention"]["plans"]) == 2
    assert all(entry["slowdown"] >= 1.0 - 1e-9 for entry in document["contention"]["plans"])


def test_a_timeline_on_shared_links_has_a_lane_for_each_kind(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "mixed.json"
    assert cli("timeline", MIXED, "-o", str(out), "--contention", *REPLICAS).code == 0
    text = out.read_text(encoding="utf-8")
    assert all(name in text for name in ("pp 0 fast x1", "pp 1 slow x1", "nic"))


def test_steps_that_differ(cli: Cli) -> None:
    """By nodes and by batches; a slow rank is named by its place in the plan."""
    for words in ((), REPLICAS):
        slow = ("--jitter-steps", "20", "--set", "jitter.slow_ranks={3: 1.2}")
        document = json.loads(cli("simulate", MIXED, "--json", *words, *slow).out)
        late = document["jitter"]
        assert late["without_jitter_s"] < late["mean_s"] < 1.3 * document["step_time_s"]
        assert late["slow_ranks"] == ["rank 3 (pp 0, dp 0, tp 3): 1.2x"]
        assert late["loss_s"]["slow_ranks"] > 0.0
        assert document["contention"]["slowdown"] > 1.0


def test_slow_ranks_where_shared_links_cannot_say_more(cli: Cli) -> None:
    words = ("simulate", MIXED, "--json", *SHARDS, "--set", "jitter.slow_ranks={3: 1.2}")
    done = cli(*words, "--jitter-steps", "5")
    assert done.code == 0
    assert "which links slow ranks leave full is not simulated: shared links" in done.err
    document = json.loads(done.out)
    assert "contention" not in document
    assert document["jitter"]["mean_s"] > document["jitter"]["without_jitter_s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("simulate", *SHARDS, "--contention"),
            "shared links (--contention, --beside, background, cluster.failed, jitter.slow_ranks): "
            "zero_stage=3 with dp_shard=2",
        ),
        (("simulate", *SHARDS, "--beside", MIXED), "use zero_stage 0 or 1, let dp_shard span"),
        (("timeline", *SHARDS, "-o", "x.json", "--contention"), "zero_stage=3 with dp_shard=2"),
        (("simulate", *SHARDS, "--events"), "--events: zero_stage=3 with dp_shard=2"),
        (
            ("simulate", "--jitter-steps", "10000001"),
            "jitter steps=10000001 (--jitter-steps); allowed: 1 to 10000000",
        ),
        (
            ("simulate", "--jitter-steps", "5", "--set", "jitter.slow_ranks={32: 1.2}"),
            "slow_ranks=32 is no rank of the plan; allowed: 0 to 31",
        ),
        (
            ("simulate", "--on", "0-2", "--beside", MIXED),
            "cluster.nodes=4 (2 fast, 2 slow), and 3 nodes are listed for it: 0, 1, 2; list 4",
        ),
        (
            ("simulate", "--on", "0-3", "--beside", f"{MIXED}@3-6"),
            "node 3 is of dgx-a100 for llama3-70b-h100-a100 (1) and of dgx-h100 for",
        ),
        (("run", "--emit", "torchrun"), "this needs nodes of one kind, but cluster.groups are"),
        (
            ("simulate", "--set", "cluster.network.nic_bandwidth=1Gb/s"),
            "stands beside cluster.groups",
        ),
    ],
)
def test_what_takes_all_nodes_for_equal_refuses(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    done = cli(words[0], MIXED, *words[1:])
    assert done.code == 2
    assert message in done.err
