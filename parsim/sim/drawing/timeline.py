"""The timeline of one simulated plan: spans, messages, memory curves, critical path.

Each class of replicas has its lanes, one class below the other: lane c x pp + r is pipeline rank r
of class c. With equal nodes and batches that is one class, whose lanes are the pipeline ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.schedule import Kind
from parsim.sim.drawing.copy_spans import copy_spans, exchange_spans, without_copies
from parsim.sim.drawing.memory_curves import memory_curves
from parsim.sim.drawing.placed_actions import Placed, critical_path, placed_actions
from parsim.sim.drawing.task_spans import task_spans
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.step.exchanges import class_copies, class_exchanges, copied_seconds, routed_shares
from parsim.sim.step.lanes import lane_labels, lanes_in_words
from parsim.sim.step.priced_step import PricedStep, prices_of
from parsim.sim.step.schedule_costs import exposed_seconds
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Flow, Span, Timeline, ordered

_Key = tuple[int, str, int, int]
"""Rank, kind, stage and micro-batch of a span."""


BUBBLE_IN_PICTURES = "idle share of the pipeline phase, mean over ranks"
"""What pictures say of their bubble."""

_MESSAGES = {
    True: (SpanKind.SEND_F, SpanKind.RECV_F),
    False: (SpanKind.SEND_B, SpanKind.RECV_B),
}
"""What a message is called where it is sent and where it arrives: ahead, and back."""


class _Lanes(NamedTuple):
    """A class of replicas: its number, the first of its lanes, its actions."""

    number: int
    first: int
    actions: list[Placed]


def build_timeline(evaluation: Evaluation) -> Timeline:
    """Draw what tier B computed for a plan."""
    step = evaluation.step
    classes = [
        _Lanes(number, number * step.plan.pp, list(placed_actions(evaluation, number)))
        for number in range(step.num_classes)
    ]
    spans = [span for lanes in classes for span in _class_spans(step, lanes)]
    spans += task_spans(step.program, prices_of(step.costs), evaluation.end, evaluation.clock)
    spans += _growth_spans(evaluation)
    in_order = ordered(spans)
    index = {_key(span): i for i, span in enumerate(in_order)}
    last = int(evaluation.clock.max(axis=0).argmax())
    return Timeline(
        spans=in_order,
        flows=tuple(_flows(step, in_order, index)),
        memory=tuple(
            replace(curve, rank=lanes.first + curve.rank)
            for lanes in classes
            for curve in memory_curves(evaluation, lanes.number, lanes.actions)
        ),
        critical=tuple(
            index[_action_key(item, classes[last].first)]
            for item in critical_path(classes[last].actions)
        ),
        meta=_meta(evaluation),
    )


def _class_spans(step: PricedStep, lanes: _Lanes) -> Iterator[Span]:
    """Actions of a class, exchanges inside them, and messages between them."""
    actions = list(_action_spans(step, lanes))
    yield from actions
    exchanges, inner = class_exchanges(step, lanes.number), actions
    copied = copied_seconds(step.column(lanes.number))
    if copied is not None:
        moved = step.schedule(lanes.number).moves
        yield from copy_spans(actions, class_copies(step, lanes.number), copied, moved)
        inner = list(without_copies(actions, copied))
    yield from exchange_spans(inner, exchanges, _routed(step, lanes.number))
    yield from _message_spans(step, lanes)


def _action_spans(step: PricedStep, lanes: _Lanes) -> Iterator[Span]:
    """Actions of a class, in the order in which they are placed."""
    exposed = exposed_seconds(step.column(lanes.number))
    for item in lanes.actions:
        yield Span(
            rank=lanes.first + item.rank,
            stream=Stream.COMPUTE,
            kind=item.action.kind.name,
            start=item.start,
            end=item.end,
            stage=item.action.stage,
            microbatch=item.action.microbatch,
            exposed=float(exposed[item.action.kind][item.action.stage, 0]),
        )


def _routed(step: PricedStep, number: int) -> dict[Kind, Array] | None:
    """Shares of a class's exchanges that are all-to-alls of experts; None without experts."""
    if step.plan.ep * step.plan.etp == 1:
        return None
    job, schedule = step.job_on(step.group(0, number)), step.schedule(number)
    shares = routed_shares(job, step.plan, step.pricing.layers(step.group(0, number)))
    return {kind: schedule.in_copies(share) for kind, share in shares.items()}


def _message_spans(step: PricedStep, lanes: _Lanes) -> Iterator[Span]:
    """A message on the lanes of both ranks, and what each of them waits for it.

    The sender waits only where sends block; the receiver from when it has nothing else to do.
    """
    stage_rank = step.schedule(lanes.number).stage_rank
    ready = {(item.action.stage, item.action.kind == Kind.F, item.action.microbatch): item.ready
             for item in lanes.actions if item.action.kind != Kind.W}  # fmt: skip
    for item in lanes.actions:
        if item.hop <= 0.0:
            continue
        stage, kind, microbatch = item.action
        ahead = kind == Kind.F
        target, kinds = stage + (1 if ahead else -1), _MESSAGES[ahead]
        begin, end = item.end, item.arrival
        blocked = end - begin if step.costs.blocking_p2p else 0.0
        sender, receiver = lanes.first + item.rank, lanes.first + stage_rank[target]
        yield Span(sender, Stream.SEND, kinds[0], begin, end, stage, microbatch, blocked)
        waited = max(0.0, end - max(begin, ready[target, ahead, microbatch]))
        yield Span(receiver, Stream.RECV, kinds[1], begin, end, target, microbatch, waited)


def _growth_spans(evaluation: Evaluation) -> Iterator[Span]:
    """What the whole step grows by, behind everything else."""
    updated, end = evaluation.updated, evaluation.step_time
    if end > updated:
        for lane in range(evaluation.step.num_classes * evaluation.step.plan.pp):
            yield Span(lane, Stream.COMPUTE, SpanKind.STRAGGLER, updated, end)


def _key(span: Span) -> _Key:
    return (span.rank, span.kind, span.stage, span.microbatch)


def _action_key(item: Placed, first: int) -> _Key:
    action = item.action
    return (first + item.rank, action.kind.name, action.stage, action.microbatch)


def _flows(step: PricedStep, spans: tuple[Span, ...], index: dict[_Key, int]) -> Iterator[Flow]:
    """Arrows from each send to its receive."""
    stage_rank, pp = step.schedule(0).stage_rank, step.plan.pp
    for i, span in enumerate(spans):
        for ahead, (sent, received) in _MESSAGES.items():
            if span.kind == sent:
                stage = span.stage + (1 if ahead else -1)
                lane = span.rank - span.rank % pp + stage_rank[stage]
                yield Flow(i, index[lane, received, stage, span.microbatch])


def predicted_hardware(job: Job) -> dict[str, object]:
    """What a prediction is for, as `parsim.comparison.compared` reads it."""
    named: dict[str, object] = {"system": job.cluster.words}
    if job.mixed:
        return named
    system = job.system
    return {
        **named,
        "device": system.device.id,
        "device_kind": "cpu" if system.on_cpu else "cuda",
        "uncalibrated": list(system.uncalibrated),
    }


def _meta(evaluation: Evaluation) -> dict[str, object]:
    step = evaluation.step
    job, plan = step.job, step.plan
    return {
        "source": "predicted",
        "model": job.model.name,
        "parameters": job.model.parameters,
        **predicted_hardware(job),
        "plan": plan.label(),
        "ranks": lanes_in_words(step),
        "step_time_s": evaluation.step_time,
        "bubble_fraction": evaluation.bubble_fraction,
        "bubble_definition": BUBBLE_IN_PICTURES,
        "peak_allocated_bytes": float(evaluation.peak.max()),
        "capacity_bytes": min(system.device.memory for system in step.systems().values()),
        "rank_labels": lane_labels(step),
    }
