"""`simulate` and `timeline --beside`, background streams and slow ranks on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import LLAMA, SMALL, Cli, runner, settings

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
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return runner(capsys)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_the_document_has_both_jobs_and_the_link_they_fight_for(cli: Cli, file: Path) -> None:
    words = ("simulate", file, "--json", "--on", "0,2", "--beside", f"{file}@1,3")
    found = cli(*words).document["together"]
    assert [one["nodes"] for one in found["jobs"]] == [[0, 2], [1, 3]]
    for one in found["jobs"]:
        assert one["slowdown"] == pytest.approx(one["together_s"] / one["alone_s"] - 1.0)
        assert one["slowdown"] > 0.05
    assert found["bottleneck"]["class"] == "spine"
    assert found["bottleneck"]["saturated_s"] > 0.0
    assert found["shared_links"] > 0


def test_without_nodes_the_jobs_stand_side_by_side(cli: Cli, file: Path) -> None:
    ran = cli("simulate", file, "--beside", file, "--json")
    found = ran.document["together"]
    assert [one["nodes"] for one in found["jobs"]] == [[0, 1], [2, 3]]
    assert [one["slowdown"] for one in found["jobs"]] == [0.0, 0.0]
    assert found["shared_links"] == 0
    assert found["bottleneck"] is None


def test_the_first_job_takes_what_the_others_leave(cli: Cli, file: Path) -> None:
    found = cli("simulate", file, "--beside", f"{file}@0-1", "--json").document["together"]
    assert [one["nodes"] for one in found["jobs"]] == [[2, 3], [0, 1]]


def test_the_text_names_bottleneck_and_slowdown(cli: Cli, file: Path) -> None:
    said = cli("simulate", file, "--on", "0,2", "--beside", f"{file}@1,3").out
    assert "jobs that share a fabric" in said
    assert "->spine:0 (spine), full for" in said.replace("\n", " ")
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
    ("words", "said"),
    [
        (("--on", "0,2"), "name a job with --beside"),
        (("--beside", f"{LLAMA}"), "nodes of one system"),
        (("--beside", "nothing.yaml"), "nothing.yaml"),
        (("--on", "0-1", "--beside", "FILE@1-2"), "needs 8 devices of node 1, and 0 of 8 are left"),
        (("--on", "0-2", "--beside", "FILE"), "3 nodes are listed"),
        (("--on", "x", "--beside", "FILE"), "no node"),
    ],
)
def test_what_cannot_share_is_refused(
    cli: Cli, file: Path, words: tuple[str, ...], said: str
) -> None:
    done = cli("simulate", file, *(word.replace("FILE", str(file)) for word in words))
    assert done.code == 2
    assert said in done.err


def test_streams_are_simulated_unasked(cli: Cli, file: Path) -> None:
    done = cli("simulate", file, "--json", *STREAMS)
    found = done.document["contention"]
    assert found["step_time_s"] >= found["without_background_s"]
    (one,) = found["background"]
    assert one["name"] == "checkpoint"
    assert one["transfer_s"] > 0.0
    assert one["bottleneck"]["class"] == "storage"
    assert found["step_time_s"] == pytest.approx(
        found["without_background_s"] + one["mean_cost_per_step_s"]
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
    assert slow["contention"]["step_time_s"] > 1.2 * plain["step_time_s"]
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
    path.write_text(SCENARIO.replace("nodes: 2", "nodes: 24").replace("dp: 16", "dp: 192")
                    .replace("size: 16", "size: 192"), encoding="utf-8")  # fmt: skip
    odd = ",".join(str(2 * i + 1) for i in range(24))
    even = ",".join(str(2 * i) for i in range(24))
    said = cli("simulate", path, "--on", even, "--beside", f"{path}@{odd}").out
    assert "1 ... 47 (24)" in said


def test_periodic_streams_are_left_out_beside_others_and_said(cli: Cli, file: Path) -> None:
    done = cli("simulate", file, "--beside", file, "--json", *STREAMS)
    assert "left out beside other jobs" in done.err
