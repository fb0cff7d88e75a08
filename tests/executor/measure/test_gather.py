"""Spans of several ranks as one timeline: arrows, what of a wait is communication, who is who."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from executor.measure.gather import RankPlace, assemble
from executor.measure.record import rank_place
from parsim.plan import Plan
from parsim.timelines.timeline import Span

PLACES = [RankPlace(pipeline_rank=0), RankPlace(pipeline_rank=1)]


def received(start: float, end: float, *, sent: float) -> float:
    """Exposed seconds of a wait from `start` to `end` for a message sent at `sent`."""
    spans = [
        Span(0, "send", "SEND_F", sent, sent + 0.25, 0, 0),
        Span(1, "recv", "RECV_F", start, end, 1, 0),
        Span(0, "compute", "F", 0.0, sent, 0, 0),
    ]
    timeline = assemble(spans, PLACES, {})
    (flow,) = timeline.flows
    assert timeline.spans[flow.source].kind == "SEND_F"
    return timeline.spans[flow.target].exposed


def test_before_it_is_sent_waiting_for_a_message_is_a_bubble() -> None:
    assert received(0.0, 3.0, sent=2.0) == 1.0
    assert received(2.5, 3.0, sent=2.0) == 0.5
    assert received(1.0, 2.0, sent=2.5) == 0.0  # clocks that are apart


def test_messages_stay_in_their_pipeline() -> None:
    places = [RankPlace(pipeline_rank=r // 2, pipeline=r % 2) for r in range(4)]
    spans = [Span(r, "send", "SEND_F", 1.0 + r, 1.25 + r, 0, 0) for r in (0, 1)]
    spans += [Span(r, "recv", "RECV_F", 0.0, 5.0, 1, 0) for r in (2, 3)]
    timeline = assemble(spans, places, {})
    pairs = [(timeline.spans[f.source].rank, timeline.spans[f.target].rank) for f in timeline.flows]
    assert pairs == [(0, 2), (1, 3)]
    assert [span.exposed for span in timeline.spans if span.rank >= 2] == [4.0, 3.0]
    assert timeline.meta["pipeline_rank"] == {"0": 0, "1": 0, "2": 1, "3": 1}
    assert timeline.meta["pipeline"] == {"0": 0, "1": 1, "2": 0, "3": 1}


def test_a_tied_table_is_summed_from_when_both_ranks_are_there() -> None:
    spans = [
        Span(0, "dp", "REDUCE_TIED", 4.0, 5.0, exposed=1.0),
        Span(1, "dp", "REDUCE_TIED", 1.0, 5.25, exposed=4.25),
        Span(1, "compute", "F", 0.0, 1.0, 1, 0),
    ]
    first, last = (s for s in assemble(spans, PLACES, {}).spans if s.kind == "REDUCE_TIED")
    assert (first.start, first.exposed) == (4.0, 1.0)
    assert (last.start, last.exposed) == (4.0, 1.25)


def test_time_begins_with_the_first_span() -> None:
    timeline = assemble([Span(0, "compute", "F", 7.0, 8.0, 0, 0)], PLACES[:1], {"source": "x"})
    assert timeline.spans[0].start == 0.0
    assert timeline.meta["rank_labels"] == {"0": "pp 0"}
    assert timeline.meta["source"] == "x"


def test_ranks_are_named_by_the_axes_that_are_used() -> None:
    plan = Plan(pp=2, dp_replicate=2, tp=2)
    places = [rank_place(plan, rank) for rank in range(8)]
    assert places[0].name == "pp 0, dp 0, tp 0"
    assert places[7] == RankPlace(pipeline_rank=1, pipeline=3, name="pp 1, dp 1, tp 1")
    assert len({(rank_place.pipeline_rank, rank_place.pipeline) for rank_place in places}) == 8
    assert rank_place(Plan(), 0).name == ""
