"""The drawn timeline is the computed one: exact starts, no overlaps, memory back at its base."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.schedule import Kind
from parsim.sim.drawing.spans import device_span
from parsim.sim.drawing.timeline import build_timeline
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.timelines.timeline import Span, Timeline
from tests.parsim.sim.tiers import simulate_events

COMPUTE = ("F", "B", "I", "W")


def evaluated(job: Job, plan: Plan) -> Evaluation:
    return evaluate(job, plan, keep=True)


@pytest.fixture
def evaluation(job: Job, plan: Plan) -> Evaluation:
    return evaluated(job, plan)


@pytest.fixture
def timeline(evaluation: Evaluation) -> Timeline:
    return build_timeline(evaluation)


def actions(timeline: Timeline) -> list[Span]:
    return [span for span in timeline.spans if span.kind in COMPUTE]


def test_each_action_is_drawn_once_on_its_rank(timeline: Timeline, evaluation: Evaluation) -> None:
    expected = {
        (rank, action.kind.name, action.stage, action.microbatch)
        for rank, row in enumerate(evaluation.step.schedule(0).ranks)
        for action in row
    }
    drawn = [(s.rank, s.kind, s.stage, s.microbatch) for s in actions(timeline)]
    assert len(drawn) == len(expected)
    assert set(drawn) == expected


def test_starts_and_ends_are_those_of_the_event_simulation(
    timeline: Timeline, evaluation: Evaluation
) -> None:
    events = {
        (span.rank, span.kind, span.stage, span.microbatch): (span.start, span.end)
        for span in simulate_events(evaluation.step.schedule(0), evaluation.step.costs).spans
        if span.kind in COMPUTE
    }
    for span in actions(timeline):
        start, end = events[span.rank, span.kind, span.stage, span.microbatch]
        assert span.start == pytest.approx(start, rel=1e-12, abs=0)
        assert span.end == pytest.approx(end, rel=1e-12)


def test_spans_of_a_stream_do_not_overlap(timeline: Timeline) -> None:
    for rank in timeline.ranks:
        for stream in ("compute", "tp", "dp"):
            # shards are gathered in another group than copies are summed in
            lane = [span for span in timeline.on(rank, stream) if span.kind != "SHARD"]
            for before, after in pairwise(lane):
                assert before.end <= after.start


def test_messages_of_a_link_keep_their_order(timeline: Timeline) -> None:
    for rank in timeline.ranks:
        for kind in ("SEND_F", "SEND_B", "RECV_F", "RECV_B"):
            sent = [s for s in timeline.spans if s.rank == rank and s.kind == kind]
            assert all(a.start <= b.start and a.end <= b.end for a, b in pairwise(sent))


def test_spans_lie_inside_the_step(timeline: Timeline, evaluation: Evaluation) -> None:
    assert min(span.start for span in timeline.spans) == 0.0
    assert all(span.start <= span.end for span in timeline.spans)
    assert timeline.end == pytest.approx(evaluation.step_time, rel=1e-12)


def test_busy_time_is_conserved(timeline: Timeline, evaluation: Evaluation) -> None:
    m = evaluation.step.schedule(0).num_microbatches
    each = (evaluation.step.costs.forward + evaluation.step.costs.backward)[:, 0]
    for rank in timeline.ranks:
        spent = sum(s.duration for s in actions(timeline) if s.rank == rank)
        stages = evaluation.step.schedule(0).stages_on(rank)
        assert spent == pytest.approx(m * sum(each[s] for s in stages), rel=1e-12)


def test_device_span_is_the_longest_of_a_rank(timeline: Timeline, evaluation: Evaluation) -> None:
    first = [next(timeline.on(rank, "compute")).start for rank in timeline.ranks]
    longest = max(evaluation.clock[:, 0] - first)
    assert device_span(evaluation) == pytest.approx(longest, rel=1e-12)


def test_flows_join_each_send_to_its_receive(timeline: Timeline) -> None:
    sends = [i for i, s in enumerate(timeline.spans) if s.kind.startswith("SEND_")]
    assert [flow.source for flow in timeline.flows] == sends
    for flow in timeline.flows:
        source, target = timeline.spans[flow.source], timeline.spans[flow.target]
        assert source.kind.replace("SEND", "RECV") == target.kind
        assert source.microbatch == target.microbatch
        assert abs(target.stage - source.stage) == 1
        assert source.start <= target.start < target.end == source.end


def test_every_message_is_drawn(timeline: Timeline, evaluation: Evaluation) -> None:
    schedule = evaluation.step.schedule(0)
    hops = sum(a != b for a, b in pairwise(schedule.stage_rank))
    assert len(timeline.flows) == 2 * hops * schedule.num_microbatches


def test_a_received_message_comes_before_its_action(timeline: Timeline) -> None:
    by_name = {(s.kind, s.stage, s.microbatch): s for s in timeline.spans}
    for span in timeline.spans:
        if span.kind.startswith("RECV_"):
            consumer = by_name[span.kind.removeprefix("RECV_"), span.stage, span.microbatch]
            assert span.end <= consumer.start


def test_critical_path_is_contiguous(timeline: Timeline, evaluation: Evaluation) -> None:
    path = [timeline.spans[i] for i in timeline.critical]
    assert path[0].start == 0.0
    assert path[-1].end == evaluation.pipeline_time
    for before, after in pairwise(path):
        waited = after.start - before.end
        if before.rank == after.rank and not evaluation.step.costs.blocking_p2p:
            assert waited == 0.0
        else:
            hop = float(evaluation.step.costs.hop[min(before.stage, after.stage), 0])
            sent = float(evaluation.step.costs.hop[max(before.stage - 1, 0), 0])
            assert min(abs(waited - x) for x in (0.0, hop, sent)) <= 1e-12 * after.start


def test_memory_starts_and_ends_at_the_static_bytes(
    timeline: Timeline, evaluation: Evaluation
) -> None:
    static = evaluation.memory_of(0).static[:, 0]
    for curve in timeline.memory:
        assert curve.bytes[-1] == static[curve.rank]
        assert min(curve.bytes) >= static[curve.rank]
        assert list(curve.times) == sorted(curve.times)
        assert curve.times[-1] <= float(evaluation.clock[curve.rank, 0])


def test_memory_peaks_at_the_prediction(timeline: Timeline, evaluation: Evaluation) -> None:
    for curve in timeline.memory:
        predicted = float(evaluation.memory_of(0).peak[curve.rank, 0])
        assert max(curve.bytes) <= predicted * (1 + 1e-12)
        assert max(curve.bytes) == pytest.approx(predicted, rel=1e-9)


def test_memory_over_time_has_parts(timeline: Timeline, evaluation: Evaluation) -> None:
    """Static, activations and buffers; those in flight peak at the predicted activations."""
    for curve in timeline.memory:
        parts = zip(curve.activations, curve.buffers, strict=True)
        whole = [curve.static + kept + above for kept, above in parts]
        assert whole == pytest.approx(curve.bytes, rel=1e-12)
        most = float(evaluation.memory_of(0).activations[curve.rank, 0])
        assert max(curve.activations) == pytest.approx(most, rel=1e-12)
        assert curve.activations[-1] == curve.buffers[-1] == 0.0


def test_buckets_are_drawn_until_the_reduction_ends(
    timeline: Timeline, evaluation: Evaluation
) -> None:
    for rank in timeline.ranks:
        spans = [s for s in timeline.on(rank, "dp") if s.kind == "REDUCE_GRAD"]
        if spans and not evaluation.step.costs.tied.any():
            reduced = float(evaluation.reduced[rank, 0])
            assert max(spans[-1].end, float(evaluation.clock[rank, 0])) == reduced


def test_same_input_same_bytes(job: Job, plan: Plan) -> None:
    first, second = (build_timeline(evaluated(job, plan)) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert repr(first.to_json()) == repr(second.to_json())


def test_kinds_of_compute_spans() -> None:
    assert {kind.name for kind in Kind if kind.is_compute} == set(COMPUTE)


def test_exposed_parts_are_no_longer_than_their_spans(timeline: Timeline) -> None:
    assert all(-1e-18 <= s.exposed <= s.duration * (1 + 1e-9) for s in timeline.spans)


def test_exposed_parts_of_actions_are_drawn_by_stream(timeline: Timeline) -> None:
    drawn: dict[tuple[int, int, int], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.kind in ("EXCHANGE", "SHARD"):
            drawn[span.rank, span.stage, span.microbatch].append(span)
    for action in actions(timeline):
        parts = drawn[action.rank, action.stage, action.microbatch]
        inside = [p for p in parts if action.start <= p.start and p.end <= action.end]
        assert sum(p.exposed for p in inside) == pytest.approx(
            action.exposed, abs=1e-8 * action.duration
        )


def test_streams_are_those_of_the_plan(timeline: Timeline, plan: Plan) -> None:
    kinds = {span.kind for span in timeline.spans}
    assert ("EXCHANGE" in kinds) == (plan.tp > 1)
    assert ("SHARD" in kinds) == (plan.zero_stage >= 2)


def test_a_rank_waits_for_a_message_only_while_it_is_idle(timeline: Timeline) -> None:
    for rank in timeline.ranks:
        compute = [s for s in timeline.on(rank, "compute") if s.kind in COMPUTE]
        for message in (s for s in timeline.on(rank, "recv") if s.exposed > 0.0):
            waited = message.end - message.exposed
            assert not any(s.start < message.end and waited + 1e-12 < s.end for s in compute)


def test_senders_wait_where_sends_block(timeline: Timeline, evaluation: Evaluation) -> None:
    for span in timeline.spans:
        if span.stream == "send":
            assert span.exposed == (span.duration if evaluation.step.costs.blocking_p2p else 0.0)


def test_the_tied_table_is_summed_by_its_two_ranks(
    timeline: Timeline, evaluation: Evaluation
) -> None:
    spans = [s for s in timeline.spans if s.kind == "REDUCE_TIED"]
    if not evaluation.step.costs.tied[0] or len(timeline.ranks) == 1:
        assert spans == []
        return
    assert [s.rank for s in spans] == [0, timeline.ranks[-1]]
    for span in spans:
        assert span.duration == pytest.approx(float(evaluation.step.costs.tied[0]))
        assert span.end == float(evaluation.reduced[span.rank, 0])


def test_what_is_exposed_behind_the_actions_makes_up_the_wait_for_the_update(
    timeline: Timeline, evaluation: Evaluation
) -> None:
    for rank in timeline.ranks:
        clock, reduced = float(evaluation.clock[rank, 0]), float(evaluation.reduced[rank, 0])
        kinds = ("REDUCE_GRAD", "REDUCE_TIED")
        waited = [s for s in timeline.on(rank, "dp") if s.kind in kinds and s.exposed > 0.0]
        assert all(span.end <= reduced for span in waited)
        assert sum(s.exposed for s in waited) <= reduced - clock + 1e-12
