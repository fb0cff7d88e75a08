"""Pipelines on several processes against one process; launches are shared, cases are many."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from parsim.schedule import Action, Kind
from parsim.timelines.timeline import Span, Timeline
from tests.executor.launch import LaunchError, launch

FOLDER = Path(__file__).parents[1]
EXACT = 1e-6  # fp32: 2**-23 = 1.2e-7, and a few sums in another order

STOCK = ("naive", "gpipe", "1f1b", "eager_1f1b", "interleaved_1f1b", "looped_bfs", "hanayo")
RANKS = {"two": 2, "three": 3, "four": 4}
SPLIT = ("zb_h1", "zb_2p", "zb_v", "v_half", "v_min", "dualpipe_v")
TIMELINES = [("two", f"timeline of {name}", 2) for name in (*STOCK, *SPLIT, "random 11")]
TIMELINES.append(("four", "2x2 timeline", 2))

pytestmark = pytest.mark.distributed

Suite = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """What each rank found in a suite; each suite is launched once."""

    @cache
    def run(name: str) -> list[Any]:
        folder = tmp_path_factory.mktemp(name)
        worker = FOLDER / "pipeline_worker.py"
        return launch(worker, name, ranks=RANKS[name], folder=folder, timeout=150)

    return run


def worst(by_rank: list[Any], case: str) -> tuple[float, float]:
    """The largest gradient error over ranks, and the loss error where the last stage is."""
    losses = [rank[case]["loss"] for rank in by_rank if "loss" in rank[case]]
    assert losses
    return max(rank[case]["gradient"] for rank in by_rank), max(losses)


@pytest.mark.parametrize("name", ["two", "four"])
@pytest.mark.parametrize("schedule", [*STOCK, *SPLIT])
def test_schedule_trains_as_one_process(suite: Suite, name: str, schedule: str) -> None:
    gradient, loss = worst(suite(name), schedule)
    assert gradient <= EXACT
    assert loss <= EXACT


@pytest.mark.parametrize(
    "case",
    [
        "one microbatch",
        "csv",
        "csv with messages",
        "recompute",
        "recompute, split backward",
        "not contiguous",
        "accumulated",
        "one rank",
    ],
)
def test_unusual_pipeline_trains_as_one_process(suite: Suite, case: str) -> None:
    gradient, loss = worst(suite("two"), case)
    assert gradient <= EXACT
    assert loss <= EXACT


def test_random_schedules_train_as_one_process(suite: Suite) -> None:
    result = suite("three")
    assert len(result[0]) == 100
    for case in result[0]:
        gradient, loss = worst(result, case)
        assert (case, gradient <= EXACT, loss <= EXACT) == (case, True, True)


@pytest.mark.parametrize(
    "case",
    [
        *(f"2x2 reduce_grad, {name}" for name in ("naive", "gpipe", "1f1b", "interleaved_1f1b")),
        *(f"2x2 reduce_grad, {name}" for name in SPLIT),
        "2x2 reduce_grad, random 5",
        "2x2 ddp, 1f1b",
        "2x2 ddp, interleaved_1f1b",
        "2x2 zero 2, 1f1b",
        "2x2 zero 2, interleaved_1f1b",
        "2x2 zero 2, random 5",
        "2x2 zero 3, 1f1b",
        "2x2 zero 3, interleaved_1f1b",
    ],
)
def test_pipeline_with_data_parallelism_trains_as_one_process(suite: Suite, case: str) -> None:
    gradient, loss = worst(suite("four"), case)
    assert gradient <= EXACT
    assert loss <= EXACT


@pytest.mark.parametrize(
    ("case", "wording"),
    [
        ("deadlock", "DeadlockError: .*rank 0 waits at 0B0 for rank 1 to run 1B0"),
        ("stages", r"PlanError: rank [01] was given stages \[7\], but 1f1b puts \[[01]\] there"),
        ("edges", "PlanError: 4 edges for 2 stages; expected 3"),
        ("twice", "PlanError: .*wrapped as ddp and buckets are given too"),
        ("ddp", "PlanError: .*DistributedDataParallel's hooks never run"),
        ("size", "ScheduleError: 1f1b is for 4 pipeline ranks, but the group has 2"),
        ("nothing", "InputError: this rank holds a stage that needs (tokens|targets)"),
        ("rows", r"InputError: (tokens|targets) have 6 rows.*4 microbatches"),
    ],
)
def test_misfit_is_refused_on_every_rank(suite: Suite, case: str, wording: str) -> None:
    for rank in suite("two"):
        assert re.match(wording, rank["refusals"][case])


def recorded(suite: Suite, name: str, case: str) -> tuple[Timeline, list[list[str]]]:
    result = suite(name)[0][case]
    return Timeline.from_json(result["timeline"]), result["lowered"]


@pytest.mark.parametrize(("name", "case", "ranks"), TIMELINES)
def test_timeline_holds_each_action_once(suite: Suite, name: str, case: str, ranks: int) -> None:
    timeline, lowered = recorded(suite, name, case)
    assert timeline.ranks == tuple(range(ranks))
    for rank, row in enumerate(lowered):
        names = [span.name for span in timeline.on(rank) if span.kind != "OPTIMIZER"]
        reduced = {name for name in names if "REDUCE_GRAD" in name}  # each has several buckets
        assert sorted([*(name for name in names if name not in reduced), *reduced]) == sorted(row)
        assert [span.kind for span in timeline.on(rank)].count("OPTIMIZER") == 1


@pytest.mark.parametrize(("name", "case", "ranks"), TIMELINES)
def test_computing_keeps_the_order_of_the_schedule(
    suite: Suite, name: str, case: str, ranks: int
) -> None:
    timeline, lowered = recorded(suite, name, case)
    for rank in range(ranks):
        spans = [s for s in timeline.on(rank, "compute") if s.kind != "OPTIMIZER"]
        computed = [text for text in lowered[rank] if Action.parse(text).kind.is_compute]
        assert [span.name for span in spans] == computed
        assert all(a.end <= b.start for a, b in pairwise(spans))
        assert all(span.duration > 0 for span in spans)


@pytest.mark.parametrize(("name", "case", "ranks"), TIMELINES)
def test_forward_comes_before_backward_on_every_clock(
    suite: Suite, name: str, case: str, ranks: int
) -> None:
    timeline, _ = recorded(suite, name, case)
    error = 2 * max(timeline.meta["clock_error_s"])
    by_name = {span.name: span for span in timeline.spans if span.stage >= 0}
    for span in by_name.values():
        if span.kind == Kind.F.name:
            stage, mb = span.stage, span.microbatch
            backward = by_name.get(f"{stage}B{mb}") or by_name[f"{stage}I{mb}"]
            assert span.end <= backward.start
            after = by_name.get(f"{stage + 1}F{mb}")
            assert after is None or span.end <= after.start + error


@pytest.mark.parametrize(("name", "case", "ranks"), TIMELINES)
def test_waiting_ends_where_computing_begins(
    suite: Suite, name: str, case: str, ranks: int
) -> None:
    timeline, _ = recorded(suite, name, case)
    consumers = {"RECV_F": ("F",), "RECV_B": ("B", "I")}
    starts = {(s.kind, s.stage, s.microbatch): s.start for s in timeline.spans}
    waits: list[Span] = [s for s in timeline.spans if s.stream == "recv"]
    for wait in waits:
        keys = [(kind, wait.stage, wait.microbatch) for kind in consumers[wait.kind]]
        assert wait.end in [starts.get(key) for key in keys]
    assert len(timeline.flows) == len(waits) > 0


@pytest.mark.parametrize(("name", "case", "ranks"), TIMELINES)
def test_recording_stops_and_changes_nothing(
    suite: Suite, name: str, case: str, ranks: int
) -> None:
    timeline, _ = recorded(suite, name, case)
    result = [rank[case] for rank in suite(name) if "timeline" in rank[case]]
    assert result[0]["silent"] == sum(1 for _ in timeline.on(0))
    gradient, loss = worst(suite(name), case)
    assert max(gradient, loss, result[0]["unchanged"]) <= EXACT


def test_hanging_workers_are_ended(tmp_path: Path) -> None:
    worker = tmp_path / "hang.py"
    worker.write_text(
        "import os, pathlib, signal, sys, time\n"
        "from tests.executor.launch import die_with_parent\n"
        "die_with_parent()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path(sys.argv[1], f'pid{os.environ[\"RANK\"]}').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(LaunchError, match=r"no end after 3 s"):
        launch(worker, ranks=2, folder=tmp_path, timeout=3)
    pids = [int(file.read_text()) for file in tmp_path.glob("pid*")]
    assert len(pids) == 2
    assert _all_end(pids)


def test_failing_worker_is_reported(tmp_path: Path) -> None:
    worker = tmp_path / "fail.py"
    worker.write_text("raise SystemExit('no such luck')\n")
    with pytest.raises(LaunchError, match="no such luck"):
        launch(worker, ranks=1, folder=tmp_path, timeout=60)


def _all_end(pids: list[int]) -> bool:
    """A killed process may need a moment to be gone."""
    for _ in range(100):
        if not any(map(_alive, pids)):
            return True
        time.sleep(0.1)
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # A zombie has ended; only its parent, or init, has not asked for its exit code yet.
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
