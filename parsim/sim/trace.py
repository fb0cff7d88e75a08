"""The timeline of one simulated plan: spans, messages, memory curves, critical path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.cost.step import StepCosts
from parsim.plan import Plan
from parsim.schedule import Action, Kind
from parsim.sim.critical_path import critical_path
from parsim.sim.evaluate import Evaluation
from parsim.sim.inner import inner_spans, routed_shares, tensor_parts
from parsim.sim.memory_curves import memory_curves
from parsim.sim.own_costs import exposed_parts
from parsim.sim.placed import Placed, placed_actions
from parsim.sim.tail import chunk_order, last_backwards, reduce_gradients, tied_owners
from parsim.timeline import Flow, Span, Timeline, ordered


def build_timeline(
    job: Job,
    plan: Plan,
    layers: LayerTable,
    found: Evaluation,
    tensor: Mapping[str, NDArray[np.float64]] | None = None,
) -> Timeline:
    """Draw what tier B computed for a single plan; `tensor` are its `tensor_parts`, if known."""
    placed = list(placed_actions(found))
    spans = [_compute_span(found, item) for item in placed]
    tensor = tensor or tensor_parts(job, plan, layers, found.costs)
    spread = plan.ep * plan.etp > 1
    routed = routed_shares(job, plan, layers) if spread else None
    spans += list(inner_spans(spans, tensor, routed))
    spans += list(_send_spans(found, placed)) + list(_bucket_spans(found))
    spans += list(_tied_spans(found)) + list(_tail_spans(found))
    in_order = ordered(spans)
    number = {_key(span): i for i, span in enumerate(in_order)}
    return Timeline(
        spans=in_order,
        flows=tuple(_flows(found, in_order, number)),
        memory=tuple(memory_curves(job, plan, layers, found, placed)),
        critical=tuple(critical_path(found, placed, number)),
        meta=_meta(job, plan, found),
    )


def _key(span: Span) -> tuple[int, str, int, int]:
    return (span.rank, span.kind, span.stage, span.microbatch)


def _meta(job: Job, plan: Plan, found: Evaluation) -> dict[str, object]:
    return {
        "source": "predicted",
        "model": job.model.name,
        "parameters": job.model.parameters,
        "system": f"{job.cluster.num_nodes} x {job.system.id}",
        "plan": plan.label(),
        "ranks": "pipeline ranks (tensor- and data-parallel peers behave alike)",
        "step_time_s": float(found.step_time[0]),
        "bubble_fraction": float(found.bubble_fraction[0]),
        "bubble_definition": "idle share of the pipeline phase, mean over ranks",
        "peak_allocated_bytes": float(found.memory.peak[:, 0].max()),
        "rank_labels": {str(r): f"pp {r}" for r in range(plan.pp)},
    }


def _hop(found: Evaluation, action: Action) -> float:
    """Seconds of the message an action sends; 0 where its consumer is on the same rank."""
    schedule = found.graph.schedule
    if action.kind == Kind.W:
        return 0.0
    target = action.stage + (1 if action.kind == Kind.F else -1)
    if not 0 <= target < schedule.num_stages:
        return 0.0
    if schedule.stage_rank[target] == schedule.stage_rank[action.stage]:
        return 0.0
    return float(found.costs.hop[min(action.stage, target), 0])


def _compute_span(found: Evaluation, item: Placed) -> Span:
    action = item.action
    return Span(
        rank=item.rank,
        stream="compute",
        kind=action.kind.name,
        start=item.start,
        end=item.end,
        stage=action.stage,
        microbatch=action.microbatch,
        exposed=float(_exposed(found.costs, action.kind)[action.stage, 0]),
    )


def _exposed(costs: StepCosts, kind: Kind) -> NDArray[np.float64]:
    """Exposed communication inside an action of a kind, (S, B)."""
    if kind == Kind.F or kind == Kind.B:
        return costs.exposed_forward if kind == Kind.F else costs.exposed_backward
    inner, outer = exposed_parts(costs)
    return inner if kind == Kind.I else outer


def _send_spans(found: Evaluation, placed: list[Placed]) -> Iterator[Span]:
    """A message on the lanes of both ranks, and what each of them waits for it.

    The sender waits only where sends block; the receiver from when it has nothing else to do.
    """
    schedule, blocking = found.graph.schedule, found.costs.blocking_p2p
    ready = {(i.action.stage, i.action.kind == Kind.F, i.action.microbatch): i.ready for i in placed
             if i.action.kind != Kind.W}  # fmt: skip
    for item in placed:
        if _hop(found, item.action) <= 0.0:
            continue
        stage, kind, microbatch = item.action
        target = stage + (1 if kind == Kind.F else -1)
        name = "F" if kind == Kind.F else "B"
        begin, end = item.end, item.arrival
        held = end - begin if blocking else 0.0
        yield Span(item.rank, "send", f"SEND_{name}", begin, end, stage, microbatch, held)
        other = schedule.stage_rank[target]
        waited = max(0.0, end - max(begin, ready[target, kind == Kind.F, microbatch]))
        yield Span(other, "recv", f"RECV_{name}", begin, end, target, microbatch, waited)


def _bucket_spans(found: Evaluation) -> Iterator[Span]:
    """One span per stage: from its first bucket's start to its last bucket's end.

    The rank waits for what is left of it when its last action has ended.
    """
    costs, run = found.costs, found.run
    lengths, sent = last_backwards(found.graph, costs)
    for rank, stages in enumerate(chunk_order(found.graph)):
        free = 0.0
        for stage in stages:
            count, each = float(costs.buckets[stage, 0]), float(costs.bucket_time[stage, 0])
            if each <= 0.0:
                continue
            length = float(lengths[stage, 0])
            end = float(run.last_end[stage, 0]) - float(sent[stage, 0])
            if costs.overlap_reduce:
                begin = max(free, end - length + length / count)
                free = max(begin + count * each, end + each)
            else:
                begin = max(free, float(run.clock[rank, 0]))
                free = begin + count * each
            waited = max(0.0, free - max(begin, float(run.clock[rank, 0])))
            yield Span(rank, "dp", "REDUCE_GRAD", begin, free, stage, exposed=waited)


def _tied_spans(found: Evaluation) -> Iterator[Span]:
    """All-reduce of the tied table's gradient, when both of its ranks have reduced theirs."""
    graph, tied = found.graph, float(found.costs.tied[0])
    owners = tied_owners(graph)
    if tied <= 0.0 or owners[0] == owners[1]:
        return
    reduced = np.maximum(found.run.clock, reduce_gradients(graph, found.costs, found.run))
    begin = float(reduced[list(owners), 0].max())
    for rank in owners:
        yield Span(rank, "dp", "REDUCE_TIED", begin, begin + tied, exposed=tied)


def _tail_spans(found: Evaluation) -> Iterator[Span]:
    costs, tail = found.costs, found.tail
    barrier = float(tail.barrier[0])
    norm = barrier + float(costs.norm[0])
    updated, step = float(tail.updated[0]), float(tail.step_time[0])
    for rank in range(found.graph.schedule.pp):
        if norm > barrier:
            yield Span(rank, "compute", "GRAD_NORM", barrier, norm)
        done = norm + float(costs.optimizer[rank, 0])
        yield Span(rank, "compute", "OPTIMIZER", norm, done)
        gather = float(costs.gather[rank, 0])
        if gather > 0.0:
            yield Span(rank, "dp", "GATHER_PARAM", done, done + gather, exposed=gather)
        if step > updated:
            yield Span(rank, "compute", "STRAGGLER", updated, step)


def _flows(
    found: Evaluation, spans: tuple[Span, ...], number: dict[tuple[int, str, int, int], int]
) -> Iterator[Flow]:
    """Arrows from each send to its receive."""
    rank_of = found.graph.schedule.stage_rank
    for i, span in enumerate(spans):
        if span.kind in ("SEND_F", "SEND_B"):
            stage = span.stage + (1 if span.kind == "SEND_F" else -1)
            kind = span.kind.replace("SEND", "RECV")
            yield Flow(i, number[(rank_of[stage], kind, stage, span.microbatch)])
