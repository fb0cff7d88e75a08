"""`simulate` and `timeline --beside`, background streams and slow ranks on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import LLAMA, ROOT, SMALL, Cli, settings

SCENARIO = """model: {name: gpt-1.7b}
cluster: {system: dgx-a100, nodes: 2, network: {nodes_per_leaf: 2, oversubscription: 8}}
software: megatron-2022
training: {global_batch_size: 16, precision: bf16}
plan: {dp: 16}
"""
STREAMS = settings(
    "background.storage_bandwidth=20GB/s",
    "background.streams.checkpoint={from: devices, to: storage, size: 2GB, every: 50}",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_the_document_has_both_jobs_and_the_link_they_fight_for(cli: Cli, file: Path) -> None:
    words = ("simulate", file, "--json", "--on", "0,2", "--beside", f"{file}@1,3")
    document = cli(*words).document["together"]
    assert [job["nodes"] for job in document["jobs"]] == [[0, 2], [1, 3]]
    for job in document["jobs"]:
        assert job["slowdown"] == pytest.approx(job["together_s"] / job["alone_s"] - 1.0)
        assert job["slowdown"] > 0.05
    assert document["bottleneck"]["class"] == "spine"
    assert document["bottleneck"]["saturated_s"] > 0.0
    assert document["shared_links"] > 0


def test_without_nodes_the_jobs_stand_side_by_side(cli: Cli, file: Path) -> None:
    ran = cli("simulate", file, "--beside", file, "--json")
    document = ran.document["together"]
    assert [job["nodes"] for job in document["jobs"]] == [[0, 1], [2, 3]]
    assert [job["slowdown"] for job in document["jobs"]] == [0.0, 0.0]
    assert document["shared_links"] == 0
    assert document["bottleneck"] is None


def test_the_first_job_takes_what_the_others_leave(cli: Cli, file: Path) -> None:
    document = cli("simulate", file, "--beside", f"{file}@0-1", "--json").document["together"]
    assert [job["nodes"] for job in document["jobs"]] == [[2, 3], [0, 1]]


def test_the_text_names_bottleneck_and_slowdown(cli: Cli, file: Path) -> None:
    text = cli("simulate", file, "--on", "0,2", "--beside", f"{file}@1,3").out
    assert "jobs that share a fabric" in text
    assert "->spine:0 (spine), full for" in text.replace("\n", " ")
    assert "neither slows the other" in cli("simulate", file, "--beside", file).out


def test_the_trace_has_both_jobs(cli: Cli, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    words = ("timeline", file, "-o", path, "--on", "0,2", "--beside", f"{file}@1,3")
    assert cli(*words).code == 0
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"a (1): rank 0", "a (2): rank 0"} <= names
    assert {"nvlink", "nic", "spine"} <= {e["name"] for e in events if e["ph"] == "C"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "0,2"), "name a job with --beside"),
        (("--beside", f"{SMALL}"), "and cpu has no network, so that they share no fabric"),
        (("--on", "0-1", "--beside", f"{LLAMA}@1"), "node 1 is of dgx-a100 for a and of dgx-h100"),
        (("--on", "0-1", "--beside", "FILE@2-4"), "list 2"),
        (("--beside", "nothing.yaml"), "nothing.yaml"),
        (("--on", "0-1", "--beside", "FILE@1-2"), "needs 8 devices of node 1, and 0 of 8 are left"),
        (("--on", "0-2", "--beside", "FILE"), "3 nodes are listed"),
        (("--on", "x", "--beside", "FILE"), "--on 'x': 'x' is no node and no range; e.g. 0-3,8"),
        (("--beside", "FILE@x"), "on nodes 'x': 'x' is no node and no range"),
        (("--beside", "FILE@3-1"), "on nodes '3-1': '3-1' goes down"),
        (("--beside", "FILE@"), "on nodes '': '' is no node"),
    ],
)
def test_what_cannot_share_is_refused(
    cli: Cli, file: Path, words: tuple[str, ...], message: str
) -> None:
    done = cli("simulate", file, *(word.replace("FILE", str(file)) for word in words))
    assert done.code == 2
    assert message in done.err


def test_beside_is_drawn_as_a_trace_only(cli: Cli, file: Path, tmp_path: Path) -> None:
    done = cli("timeline", file, "-o", tmp_path / "t.png", "--beside", file)
    assert done.code == 2
    assert "--beside is drawn in Perfetto's form only; write a .json" in done.err


def test_streams_are_simulated_unasked(cli: Cli, file: Path) -> None:
    done = cli("simulate", file, "--json", *STREAMS)
    document = done.document["contention"]
    assert document["step_time_s"] >= document["without_background_s"]
    (first,) = document["background"]
    assert first["name"] == "checkpoint"
    assert first["transfer_s"] > 0.0
    assert first["bottleneck"]["class"] == "storage"
    assert document["step_time_s"] == pytest.approx(
        document["without_background_s"] + first["mean_cost_per_step_s"]
    )
    assert "checkpoint" in cli("simulate", file, *STREAMS).out


def test_failed_parts_and_maps_are_simulated_unasked(cli: Cli, file: Path) -> None:
    for setting in ("cluster.failed=[nic:0.3]", f"cluster.placement={list(range(16))[::-1]}"):
        done = cli("simulate", file, "--json", "--set", setting)
        assert "contention" in done.document
        assert "links are simulated too" in done.err
    search = cli("search", file, "--top", "3", "--json", "--set", "cluster.failed=[nic:0.3]")
    assert len(search.document["contention"]["plans"]) == 3


def test_a_slow_rank_says_which_link_is_full(cli: Cli, file: Path) -> None:
    words = ("simulate", file, "--json", "--set", "jitter.slow_ranks={3: 1.5}")
    plain, slow = cli(*words).document, cli(*words, "--jitter-steps", "20").document
    assert "contention" not in plain
    assert plain["step_time_s"] > 1.2 * cli("simulate", file, "--json").document["step_time_s"]
    assert slow["contention"]["step_time_s"] >= 0.999 * plain["step_time_s"]
    assert slow["contention"]["bottleneck"]["link"]


def test_a_system_without_hosts_says_so(cli: Cli) -> None:
    words = settings("background.streams.x={from: devices, to: hosts, size: 1MB}")
    done = cli("simulate", SMALL, *words)
    assert done.code == 2
    assert "no part host" in done.err


def test_the_trace_of_a_slow_rank_is_longer(cli: Cli, file: Path, tmp_path: Path) -> None:
    ends = []
    for words in ((), ("--set", "jitter.slow_ranks={3: 1.5}")):
        path = tmp_path / "t.json"
        assert cli("timeline", file, "--contention", "-o", path, *words).code == 0
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
        ends.append(max(e["ts"] + e["dur"] for e in events if e["ph"] == "X"))
    assert ends[1] > 1.2 * ends[0]


def test_a_long_list_of_nodes_is_cut_short(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        SCENARIO.replace("nodes: 2", "nodes: 24")
        .replace("dp: 16", "dp: 192")
        .replace("size: 16", "size: 192"),
        encoding="utf-8",
    )
    odd = ",".join(str(2 * i + 1) for i in range(24))
    even = ",".join(str(2 * i) for i in range(24))
    text = cli("simulate", path, "--on", even, "--beside", f"{path}@{odd}").out
    assert "1 ... 47 (24)" in text


def test_periodic_streams_cost_both_jobs(cli: Cli, file: Path) -> None:
    words = ("simulate", file, "--on", "0,2", "--beside", f"{file}@1,3")
    quiet = cli(*words, "--json").document["together"]["jobs"]
    done = cli(*words, "--json", *STREAMS)
    first, second = done.document["together"]["jobs"]
    (single,) = first["background"]
    assert "background" not in second
    assert (single["name"], single["every_steps"], single["bottleneck"]["class"]) == (
        "checkpoint",
        50,
        "storage",
    )
    others = single["mean_cost_per_step_of_others_s"][second["name"]]
    assert first["together_s"] == pytest.approx(
        quiet[0]["together_s"] + single["mean_cost_per_step_s"], rel=1e-12
    )
    assert second["together_s"] == pytest.approx(quiet[1]["together_s"] + others, rel=1e-12)
    text = cli(*words, *STREAMS).out
    assert "checkpoint" in text
    assert "of the others'" in text


def test_the_trace_of_jobs_begins_with_their_checkpoints(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    words = ("timeline", file, "-o", path, "--on", "0,2", "--beside", f"{file}@1,3", *STREAMS)
    assert cli(*words).code == 0
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    curve = [e for e in events if e["ph"] == "C" and e["name"] == "storage"]
    assert next(iter(curve[0]["args"].values())) > 0.0


MIXED = ROOT / "scenarios" / "llama3-70b-h100-a100.yaml"


def test_a_mixed_job_beside_one_of_either_kind(cli: Cli, file: Path) -> None:
    """Nodes 0 to 1 and 4 to 5 are the mixed job's; the others' are of their own systems."""
    words = ("--on", "0-1,4-5", "--beside", f"{LLAMA}@2", "--beside", f"{file}@6-7")
    document = cli("simulate", MIXED, "--json", *words).document["together"]["jobs"]
    assert [job["nodes"] for job in document] == [[0, 1, 4, 5], [2], [6, 7]]
    alone = cli("simulate", MIXED, "--json", "--contention").document["contention"]
    assert document[0]["alone_s"] == pytest.approx(alone["step_time_s"], rel=1e-12)


def test_slow_ranks_are_slow_beside_others_too(cli: Cli, file: Path) -> None:
    words = ("simulate", file, "--json", "--on", "0,2", "--beside", f"{file}@1,3")
    slow = cli(*words, "--set", "jitter.slow_ranks={3: 1.5}")
    assert "listed slow ranks compute so much longer" in slow.err
    usual, late = (done.document["together"]["jobs"][0] for done in (cli(*words), slow))
    assert late["alone_s"] > 1.2 * usual["alone_s"]


def test_groups_of_one_system_are_told_apart_by_name(cli: Cli, tmp_path: Path) -> None:
    """Half of the nodes with slower interfaces: a plain job does not say which half it is on."""
    mixed = tmp_path / "m.yaml"
    groups = """groups:
    fast: {system: dgx-a100, nodes: 1}
    slow: {system: dgx-a100, nodes: 1, network: {nic_bandwidth: 50Gb/s}}"""
    mixed.write_text(
        SCENARIO.replace(
            "{system: dgx-a100, nodes: 2, network: {nodes_per_leaf: 2, oversubscription: 8}}",
            "\n  " + groups,
        ),
        encoding="utf-8",
    )
    assert cli("simulate", mixed, "--on", "0,3", "--beside", f"{mixed}@1,2").code == 0
    plain = tmp_path / "p.yaml"
    plain.write_text(SCENARIO, encoding="utf-8")
    done = cli("simulate", mixed, "--on", "0-1", "--beside", f"{plain}@2,3")
    assert done.code == 2
    assert "stands for several kinds of node here" in done.err
    assert "fast, slow (cluster.groups.NAME)" in done.err
