"""`parsim run` of schedules that somebody wrote by hand: gradients, order, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from executor.pipeline.runnable import check_plan_runnable
from parsim.cli.app import main
from parsim.errors import DeadlockError, PlanError, ScheduleError
from parsim.plan import Plan
from parsim.schedule import Action, Kind, Schedule, schedule_of
from parsim.schedule.lowering import lower
from tests.executor.launch import fork_runs

SPLIT = (
    "0F0,0F1,0I0,0F2,0I1,0W0,0F3,0I2,0W1,0I3,0W2,0W3\n"
    "1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2,1F3,1I3,1W3\n"
)
"""1F1B whose rank 0 computes weight gradients when it has nothing else to do."""

VEE = "0F0,0F1,3F0,3I0,3F1,3I1,0I0,3W0,3W1,0I1,0W0,0W1\n1F0,2F0,1F1,2F1,2B0,1B0,2I1,1I1,2W1,1W1\n"
"""First and last stage on rank 0; B and I with W side by side."""

UNEVEN = "0F0,0F1,0B0,0B1\n1F0,2F0,3F0,3B0,2B0,1F1,2F1,1B0,3F1,3I1,2I1,1I1,3W1,2W1,1W1\n"
"""One stage on rank 0, three on rank 1."""

FOUR = (
    "0F0,0F1,0F2,0F3,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3\n"
    "1F0,1F1,1F2,1I0,1F3,1I1,1W0,1I2,1W1,1I3,1W2,1W3\n"
    "2F0,2F1,2I0,2F2,2I1,2W0,2F3,2I2,2W1,2I3,2W2,2W3\n"
    "3F0,3I0,3W0,3F1,3I1,3W1,3F2,3I2,3W2,3F3,3I3,3W3\n"
)
"""ZB-H1 of the zero-bubble paper, arXiv 2401.10241, for four ranks."""

SCENARIO = """
description: a tiny GPT-2 on CPU ranks
model: {name: gpt2, num_layers: 4, hidden_size: 64, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 16, ffn_hidden_size: 128, vocab_size: 256,
        seq_len: 32, positions: 32}
cluster: {system: box, nodes: 1, catalog: [box.yaml], devices_per_node: RANKS}
software: executor-cpu
training: {global_batch_size: BATCH, precision: fp32}
plan: {schedule: own.csv, microbatch_size: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "box.yaml").write_text("systems:\n  box: {from: cpu, devices_per_node: 4}\n")
    return tmp_path


def words(folder: Path, text: str, *, ranks: int, batch: int, settings: list[str]) -> list[str]:
    (folder / "own.csv").write_text(text)
    scenario = SCENARIO.replace("RANKS", str(ranks)).replace("BATCH", str(batch))
    (folder / "s.yaml").write_text(scenario)
    collected = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--steps", "2"]
    collected += ["--warmup", "1", "--verify", "--oversubscribe", "--json"]
    return collected + [word for pair in settings for word in ("--set", pair)]


def computed(folder: Path) -> list[list[str]]:
    """What each rank computed, in order."""
    spans = json.loads((folder / "out" / "timeline.json").read_text())["spans"]
    rows: dict[int, list[tuple[float, str]]] = {}
    for rank, _, kind, start, _, stage, mb, *_ in spans:
        if kind in ("F", "B", "I", "W"):
            rows.setdefault(rank, []).append((start, str(Action(stage, Kind[kind], mb))))
    return [[name for _, name in sorted(rows[rank])] for rank in sorted(rows)]


RUNS: dict[str, tuple[str, int, int, list[str]]] = {
    "uneven, with messages": (lower(Schedule.from_csv(UNEVEN)).to_csv(), 2, 4, []),
    "four ranks": (FOUR, 4, 8, []),
    "two replicas": (SPLIT, 4, 16, ["plan.dp=2"]),
    "two shards, all communication given": (
        lower(Schedule.from_csv(VEE), unshard=True, reduce_grad=True).to_csv(),
        4,
        8,
        ["plan.dp=2", "plan.zero_stage=2"],
    ),
}


REPEATED = ("four ranks", "two replicas")
"""Cases of which the others have each part."""


@pytest.mark.distributed
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.slow) if c in REPEATED else c for c in RUNS],
)
def test_it_trains_as_one_process(
    folder: Path,
    case: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, ranks, batch, settings = RUNS[case]
    fork_runs(monkeypatch, folder)
    assert main(words(folder, text, ranks=ranks, batch=batch, settings=settings)) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["verify"]["max_gradient_error"] <= 1e-6
    assert document["verify"]["max_loss_error"] <= 1e-6
    assert document["measured"]["loss"][-1] < document["measured"]["loss"][0]
    bare = Schedule.from_csv(text).compute_only()
    rows = [list(map(str, row)) for row in bare.ranks]
    replicas = ranks // bare.pp  # pipeline ranks are outermost: 0 0 1 1
    assert computed(folder) == [row for row in rows for _ in range(replicas)]
    both = (str(folder / "out" / f"{name}.json") for name in ("predicted", "timeline"))
    assert main(["compare", *both]) in (0, 4)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            SPLIT,
            ["plan.zero_stage=3"],
            "own.csv splits the backward (it has 0I0), and zero_stage=3 (fully_shard with",
        ),
        (
            lower(Schedule.from_csv(SPLIT)).to_csv(),
            [],
            "own.csv: stage 0 lacks REDUCE_GRAD, which dp_kind=reduce_grad needs; add 0REDUCE_GRAD",
        ),
    ],
)
def test_what_would_train_wrongly_is_not_started(
    folder: Path,
    text: str,
    settings: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = words(folder, text, ranks=4, batch=16, settings=["plan.dp=2", *settings])
    assert main(asked) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


def plan(text: str, **changes: Any) -> Plan:
    read = Schedule.from_csv(text)
    v = read.num_stages // read.pp
    sizes = {"pp": read.pp, "v": v, "num_microbatches": read.num_microbatches}
    return Plan(schedule="own.csv", actions=text, **{**sizes, **changes})


def test_every_plan_is_judged_by_its_own_kind_of_data_parallelism() -> None:
    for changes in ({}, {"dp_replicate": 2}, {"dp_shard": 2, "zero_stage": 2}):
        check_plan_runnable(plan(SPLIT, **changes), backend="gloo")
    with pytest.raises(PlanError, match="wrong or no gradients"):
        check_plan_runnable(plan(SPLIT, dp_shard=2, zero_stage=3), backend="gloo")
    lowered = lower(Schedule.from_csv(SPLIT), reduce_grad=True).to_csv()
    with pytest.raises(ScheduleError, match=r"stage 0 lacks UNSHARD"):
        check_plan_runnable(plan(lowered, dp_shard=2, zero_stage=2), backend="gloo")
    check_plan_runnable(Plan(num_microbatches=4, schedule="1f1b"), backend="gloo")


def test_sends_that_wait_are_judged_by_the_backend() -> None:
    crossing = (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
    )
    check_plan_runnable(plan(crossing), backend="gloo")
    with pytest.raises(DeadlockError, match=r"own.csv: deadlock with rendezvous sends"):
        check_plan_runnable(plan(crossing), backend="nccl")


def test_what_is_run_is_what_was_written() -> None:
    lowered = lower(Schedule.from_csv(VEE), unshard=True, reduce_grad=True).to_csv()
    assert schedule_of(plan(lowered)).to_csv() == lowered
