"""The timeline of a plan whose replicas differ: lanes for each pipeline rank of each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.sim.evaluate import Evaluation
from parsim.sim.inner import tensor_parts
from parsim.sim.mixed import MixedEvaluation, latest_update, reductions
from parsim.sim.mixed_costs import members
from parsim.sim.tail import Tail, tied_owners
from parsim.sim.trace import build_timeline
from parsim.timeline import Flow, MemoryCurve, Span, Timeline, lane_order

Array = NDArray[np.float64]

_TOGETHER = ("REDUCE_GRAD", "REDUCE_TIED", "GATHER_PARAM")
"""What replicas do together: drawn here, where all of them are known."""


def class_evaluation(found: MixedEvaluation, number: int) -> Evaluation:
    """One class of replicas as tier B's evaluation of one plan; its tail is the whole step's."""
    tail = found.tail
    return Evaluation(
        graph=found.graphs[number],
        costs=found.column(number),
        run=found.runs[number],
        tail=replace(tail, reduced=tail.reduced[:, [number]]),
        memory=found.memory_of(number),
    )


def mixed_timeline(job: Job, plan: Plan, found: MixedEvaluation) -> Timeline:
    """Draw every class of replicas, one below the other; rank c x pp + r is pp rank r of class c.

    The critical path is that of the replica whose pipeline ends last.
    """
    parts = [_class_timeline(job, plan, found, c) for c in range(len(found.graphs))]
    last = int(found.clock.max(axis=0).argmax())
    spans = [
        (span._replace(rank=c * plan.pp + span.rank), c, number)
        for c, part in enumerate(parts)
        for number, span in enumerate(part.spans)
        if span.kind not in _TOGETHER
    ]
    spans += [(span, -1, -1) for span in _together(plan, found)]
    spans.sort(key=lambda item: lane_order(item[0]))
    place = {(c, number): i for i, (_, c, number) in enumerate(spans)}
    return Timeline(
        spans=tuple(span for span, _, _ in spans),
        flows=tuple(
            Flow(place[c, flow.source], place[c, flow.target])
            for c, part in enumerate(parts)
            for flow in part.flows
        ),
        memory=tuple(_curves(plan, parts)),
        critical=tuple(place[last, number] for number in parts[last].critical),
        meta=_meta(job, plan, found, parts[0].meta),
    )


def _class_timeline(job: Job, plan: Plan, found: MixedEvaluation, number: int) -> Timeline:
    one = class_evaluation(found, number)
    count = found.graphs[number].schedule.num_microbatches
    own = replace(plan, num_microbatches=count, replica_microbatches=None)
    group = members(int(found.slots.kinds[0, int(found.replicas.first[number])]))[0]
    on = job.on(job.cluster.systems[group])
    tensor = _tensor_parts(job, own, found, number)
    return build_timeline(on, own, found.pricing.layers(group), one, tensor)


def _tensor_parts(job: Job, plan: Plan, found: MixedEvaluation, number: int) -> Mapping[str, Array]:
    """Exposed exchanges inside actions, each stage's on its own kind of node."""
    replica, rank_of = int(found.replicas.first[number]), found.graphs[number].schedule.stage_rank
    groups = [members(int(found.slots.kinds[rank, replica]))[0] for rank in rank_of]
    parts = {
        group: tensor_parts(
            job.on(job.cluster.systems[group]), plan, found.pricing.layers(group),
            found.column(number),
        )
        for group in set(groups)
    }  # fmt: skip
    kinds = next(iter(parts.values()))
    return {
        kind: np.array([parts[group][kind][stage] for stage, group in enumerate(groups)])
        for kind in kinds
    }


def _together(plan: Plan, found: MixedEvaluation) -> Iterator[Span]:
    """Reductions and gathers on the lanes of every class."""
    clock, done = found.clock, list(reductions(found.graphs, found.costs, found.runs))
    ends = np.zeros(plan.pp)
    for one in done:
        ends[one.rank] = one.end
    for c in range(len(found.graphs)):
        for one in done:
            if one.end > one.start:
                waited = max(0.0, one.end - max(one.start, float(clock[one.rank, c])))
                yield Span(c * plan.pp + one.rank, "dp", "REDUCE_GRAD", one.start, one.end,
                           one.stage, exposed=waited)  # fmt: skip
        yield from _tied(plan, found, c, np.maximum(clock[:, c], ends))
    yield from _gathers(plan, found, found.tail)


def _tied(plan: Plan, found: MixedEvaluation, number: int, reduced: Array) -> Iterator[Span]:
    owners, tied = tied_owners(found.graphs[number]), float(found.costs.tied[number])
    if tied <= 0.0 or owners[0] == owners[1]:
        return
    begin = float(reduced[list(owners)].max())
    for rank in owners:
        yield Span(number * plan.pp + rank, "dp", "REDUCE_TIED", begin, begin + tied, exposed=tied)


def _gathers(plan: Plan, found: MixedEvaluation, tail: Tail) -> Iterator[Span]:
    costs = found.costs
    begins = latest_update(tail.barrier + costs.norm + costs.optimizer, found.replicas.meets)
    for (rank, c), begin in np.ndenumerate(begins):
        seconds = float(costs.gather[rank, c])
        if seconds > 0.0:
            yield Span(c * plan.pp + rank, "dp", "GATHER_PARAM", float(begin),
                       float(begin) + seconds, exposed=seconds)  # fmt: skip


def _curves(plan: Plan, parts: list[Timeline]) -> Iterator[MemoryCurve]:
    for c, part in enumerate(parts):
        for curve in part.memory:
            yield replace(curve, rank=c * plan.pp + curve.rank)


def _meta(
    job: Job, plan: Plan, found: MixedEvaluation, meta: Mapping[str, object]
) -> dict[str, object]:
    weights = found.replicas.count / found.slots.dp
    idle = 1.0 - float(found.busy.mean(axis=0) @ weights) / float(found.clock.max())
    return {
        **meta,
        "system": job.cluster.words,
        "plan": plan.label(),
        "ranks": "pipeline ranks of each class of replicas that behave alike",
        "bubble_fraction": max(idle, 0.0),
        "peak_allocated_bytes": float(found.peak.max()),
        "rank_labels": {
            str(c * plan.pp + rank): rank_label(job, found, c, rank)
            for c in range(len(found.graphs))
            for rank in range(plan.pp)
        },
    }


def rank_label(job: Job, found: MixedEvaluation, number: int, rank: int) -> str:
    """Rank, kind of node, and how many replicas do so: pp 0 fast x2."""
    replica = int(found.replicas.first[number])
    groups = members(int(found.slots.kinds[rank, replica]))
    names = "+".join(job.cluster.groups[group].name for group in groups)
    return f"pp {rank} {names} x{int(found.replicas.count[number])}"
