"""Recorded steps of whole plans on 2 and 4 ranks: every collective, on the right lane and clock.

Nothing here depends on the speed of the machine, nor on how the ranks were scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from parsim.cli.app import main
from parsim.comparison.timelines import compare_timelines
from parsim.report.timeline.trace import to_trace_events
from parsim.schedule import build_schedule
from parsim.timelines.reader import load_timeline
from parsim.timelines.timeline import Span, Timeline
from tests.executor.launch import launch
from tests.parsim.report.timeline.test_trace import check

WORKER = Path(__file__).parents[1] / "workers" / "recording.py"

TWO = ("ddp", "zero 1", "zero 3", "tp", "tp + sp", "ep", "pp", "pp, v", "cp")
FOUR = (
    *("pp x ddp", "pp x zero 1", "pp x zero 2", "pp x tp", "dp x tp"),
    *("ep x tp", "pp x ep", "pp x cp", "cp x tp"),
)
CASES = [*((2, name) for name in TWO), *((4, name) for name in FOUR)]

KINDS = {
    "ddp": {"REDUCE_GRAD"},
    "zero 1": {"REDUCE_GRAD", "GATHER_PARAM"},
    "zero 3": {"REDUCE_GRAD", "UNSHARD"},
    "tp": {"EXCHANGE"},
    "tp + sp": {"EXCHANGE"},
    "ep": {"REDUCE_GRAD", "ALL_TO_ALL"},
    "ep x tp": {"REDUCE_GRAD", "ALL_TO_ALL", "EXCHANGE", "GATHER_PARAM"},
    "pp x ep": {"REDUCE_GRAD", "ALL_TO_ALL", "REDUCE_TIED"},
    "pp": {"REDUCE_TIED"},
    "pp, v": {"REDUCE_TIED"},
    "pp x ddp": {"REDUCE_GRAD", "REDUCE_TIED"},
    "pp x zero 1": {"REDUCE_GRAD", "REDUCE_TIED", "GATHER_PARAM"},
    "pp x zero 2": {"REDUCE_GRAD", "REDUCE_TIED", "UNSHARD"},
    "pp x tp": {"EXCHANGE", "REDUCE_TIED"},
    "dp x tp": {"REDUCE_GRAD", "EXCHANGE"},
    "cp": {"REDUCE_GRAD", "EXCHANGE"},
    "pp x cp": {"REDUCE_GRAD", "REDUCE_TIED", "EXCHANGE"},
    "cp x tp": {"REDUCE_GRAD", "EXCHANGE"},
}
"""Kinds of collectives of each plan."""

Found = list[dict[str, Any]]
Suite = Callable[[int, str], Found]

pytestmark = pytest.mark.distributed
each_case = pytest.mark.parametrize(("ranks", "name"), CASES)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """What each rank found of a case; all cases of a world size run in one launch."""

    @cache
    def run(ranks: int) -> list[Any]:
        folder = tmp_path_factory.mktemp(f"ranks{ranks}")
        return launch(WORKER, ranks=ranks, folder=folder, timeout=400)

    return lambda ranks, name: [entry[name] for entry in run(ranks)]


def recorded(records: Found) -> Timeline:
    return Timeline.from_json(records[0]["timeline"])


def collectives(timeline: Timeline, rank: int) -> list[Span]:
    return [
        span
        for span in timeline.on(rank)
        if span.stream in ("tp", "ep", "dp") and span.kind != "RESHARD"  # which sends nothing
    ]


@each_case
def test_every_collective_is_recorded(suite: Suite, ranks: int, name: str) -> None:
    result = suite(ranks, name)
    timeline = recorded(result)
    assert timeline.ranks == tuple(range(ranks))
    for rank in timeline.ranks:
        spans = collectives(timeline, rank)
        # the sum of the gradients' norm over all ranks is part of GRAD_NORM
        assert len(spans) == result[rank]["collectives"] - 1 > 0
        assert {span.kind for span in spans} == KINDS[name]
        assert all((span.stream == "tp") == (span.kind == "EXCHANGE") for span in spans)
        assert all((span.stream == "ep") == (span.kind == "ALL_TO_ALL") for span in spans)


@each_case
def test_spans_are_in_order(suite: Suite, ranks: int, name: str) -> None:
    timeline = recorded(suite(ranks, name))
    assert min(span.start for span in timeline.spans) == 0.0
    for rank in timeline.ranks:
        compute = list(timeline.on(rank, "compute"))
        assert all(a.end <= b.start for a, b in pairwise(compute))
        assert [span.kind for span in compute].count("OPTIMIZER") == 1
        for span in timeline.on(rank):
            assert 0.0 <= span.exposed <= span.duration
            # what is waited for ends with the wait; reading a clock takes its time
            assert span.end <= compute[-1].end + 0.01


@each_case
def test_actions_wait_for_what_is_inside_them(suite: Suite, ranks: int, name: str) -> None:
    timeline = recorded(suite(ranks, name))
    for rank in timeline.ranks:
        compute = list(timeline.on(rank, "compute"))
        # that of GRAD_NORM is for the sum over ranks, which has no span of its own
        inside = sum(span.exposed for span in compute if span.kind != "GRAD_NORM")
        waited = sum(span.exposed for span in collectives(timeline, rank))
        assert inside <= waited + 1e-9
        if name in ("tp", "zero 3"):  # nothing is exchanged between actions
            assert inside == pytest.approx(waited)


@pytest.mark.parametrize("name", ["ddp", "zero 1", "zero 3", "tp", "tp + sp"])
def test_no_collective_ends_before_its_peer_began(suite: Suite, name: str) -> None:
    """On one clock, as it needs both; the bound is what the clocks may be apart."""
    timeline = recorded(suite(2, name))
    error = 2 * max(timeline.meta["clock_error_s"])
    stream = "tp" if "tp" in name else "dp"
    lanes = [sorted(timeline.on(rank, stream)) for rank in timeline.ranks]
    assert len({len(lane) for lane in lanes}) == 1
    for rank, other in [(0, 1), (1, 0)]:
        starts = sorted(span.start for span in lanes[rank])
        ends = sorted(span.end for span in lanes[other])
        assert all(start <= end + error for start, end in zip(starts, ends, strict=True))


@each_case
def test_messages_are_joined_within_a_pipeline(suite: Suite, ranks: int, name: str) -> None:
    timeline = recorded(suite(ranks, name))
    pipeline = timeline.meta["pipeline"]
    sends = [span for span in timeline.spans if span.stream == "send"]
    assert len(timeline.flows) == len(sends)
    assert bool(sends) == ("pp" in name)
    for flow in timeline.flows:
        source, target = timeline.spans[flow.source], timeline.spans[flow.target]
        assert pipeline[str(source.rank)] == pipeline[str(target.rank)]
        assert source.microbatch == target.microbatch


@each_case
def test_the_timeline_is_read_drawn_and_compared(
    suite: Suite, ranks: int, name: str, tmp_path: Path
) -> None:
    timeline = recorded(suite(ranks, name))
    path = tmp_path / "timeline.json"
    timeline.save(path)
    assert load_timeline(path) == timeline
    check(to_trace_events(timeline))
    assert main(["timeline", str(path), "-o", str(tmp_path / "x.png")]) == 0
    result = compare_timelines(timeline, timeline)
    shown = {row.quantity: row.measured or 0.0 for row in result.rows if row.rank is None}
    assert 0.0 <= shown["bubble_fraction"] < 1.0
    assert ("exposed_ep_s" in shown) == ("ep" in name)
    streams = ("tp", "dp", "p2p", *(["ep"] if "ep" in name else []))
    for stream in streams:
        if stream in {"p2p" if s.stream == "send" else s.stream for s in timeline.spans}:
            # gradients may be there before a rank that the machine holds up comes to wait for them
            late = stream == "dp" and not KINDS[name].isdisjoint({"REDUCE_GRAD", "REDUCE_TIED"})
            assert shown[f"exposed_{stream}_s"] > 0.0 or late
        else:
            assert shown[f"exposed_{stream}_s"] == 0.0
    parts = sum(shown[f"exposed_{stream}_s"] for stream in streams)
    assert shown["exposed_communication_s"] == pytest.approx(parts)


def test_what_leaves_for_a_partner_and_comes_back_is_recorded(suite: Suite) -> None:
    """Beside the actions of the schedule, and nothing else, as the prediction draws them."""
    timeline = recorded(suite(4, "bpipe"))
    moves = build_schedule("bpipe", pp=4, num_microbatches=6).moves
    asked = {("OFFLOAD", at.stage, move.evicted) for at, move in moves.items()}
    asked |= {("RELOAD", at.stage, move.loaded) for at, move in moves.items()}
    lanes = [span for span in timeline.spans if span.stream == "offload"]
    names = [(span.kind, span.stage, span.microbatch) for span in lanes]
    assert sorted(names) == sorted(name for name in asked if name[2] >= 0)
    assert {span.rank for span in lanes} == {0}
    actions = [span for span in timeline.on(0, "compute") if span.kind in ("F", "B")]
    for span in lanes:
        # what is there before its action comes to wait for it is hidden
        assert 0.0 <= span.exposed <= span.duration
        beside = [a for a in actions if a.start <= span.start and span.end <= a.end]
        assert len(beside) == 1
        assert beside[0].exposed >= span.exposed * (1.0 - 1e-9)
    shown = {row.quantity: row for row in compare_timelines(timeline, timeline).rows}
    assert shown["OFFLOAD_mean_s"].measured == pytest.approx(
        fmean(span.duration for span in lanes if span.kind == "OFFLOAD")
    )


@each_case
def test_training_goes_on_after_a_recorded_step(suite: Suite, ranks: int, name: str) -> None:
    result = suite(ranks, name)
    timeline = recorded(result)
    assert timeline.meta["recorded_step_s"] > 0.0
    assert timeline.meta["recording_cost"] > -1.0
    assert all(entry["timeline"] is None for entry in result[1:])
    assert any(entry["losses"] for entry in result)
