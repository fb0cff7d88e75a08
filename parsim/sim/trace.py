"""The timeline of one simulated plan: spans, messages, memory curves, critical path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, layer_counts
from parsim.cost.step import StepCosts, stage_cut
from parsim.plan import Plan, PlanTable
from parsim.schedule import Action, Kind
from parsim.sim.evaluate import Evaluation
from parsim.sim.inner import inner_spans, routed_shares, tensor_parts
from parsim.sim.maxplus import ClassTimes
from parsim.sim.memory import stage_kept
from parsim.sim.own_costs import exposed_parts, weight_times
from parsim.sim.tail import chunk_order, last_backwards, reduce_gradients, tied_owners
from parsim.sim.weight_memory import frees_before_weights, kept_for_weights
from parsim.timeline import Flow, MemoryCurve, Span, Timeline, ordered


@dataclass(frozen=True, slots=True)
class Placed:
    """An action with its rank and times.

    Its rank is free for it from `ready` on. It computes from `start` to `end`; its rank is free
    for the next one at `free`, which is later where sends block; its message is there at `arrival`.
    """

    action: Action
    rank: int
    ready: float
    start: float
    end: float
    free: float
    arrival: float


def build_timeline(
    job: Job,
    plan: Plan,
    layers: LayerTable,
    found: Evaluation,
    tensor: Mapping[str, NDArray[np.float64]] | None = None,
) -> Timeline:
    """Draw what tier B computed for a single plan; `tensor` are its `tensor_parts`, if known."""
    placed = list(_placed(found))
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
        memory=tuple(_memory_curves(job, plan, layers, found, placed)),
        critical=tuple(_critical(found, placed, number)),
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


def _placed(found: Evaluation) -> Iterator[Placed]:
    """Walk ranks in order; start = max(previous end, arrival) as in the recurrence.

    Never end - duration: that rounds, and a span could start before the one that it waits for.
    """
    graph, costs, run = found.graph, found.costs, found.run
    if run.finish is None:
        raise RuntimeError("a timeline needs evaluate(..., keep=True)")
    finish = run.finish[:, 0]
    hop = ClassTimes.of(graph, costs).hop[:, 0]
    arrival = finish if costs.blocking_p2p else finish + hop[graph.duration_class]
    heard = np.concatenate([[0.0], arrival])[graph.source]
    position = iter(graph.position.tolist())
    for rank, row in enumerate(graph.schedule.ranks):
        clock = 0.0
        for action, at in zip(row, position, strict=False):
            ready, start, clock = clock, max(clock, float(heard[at])), float(finish[at])
            end = start + _duration(found, action)
            yield Placed(action, rank, ready, start, end, clock, float(arrival[at]))


def _duration(found: Evaluation, action: Action) -> float:
    costs, stage = found.costs, action.stage
    if action.kind == Kind.F:
        return float(costs.forward[stage, 0])
    whole = float(costs.backward[stage, 0])
    if action.kind == Kind.B:
        return whole
    weight = float(weight_times(costs)[stage, 0])
    return weight if action.kind == Kind.W else whole - weight


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


def _memory_curves(
    job: Job, plan: Plan, layers: LayerTable, found: Evaluation, placed: list[Placed]
) -> Iterator[MemoryCurve]:
    """Static bytes, plus what each forward keeps until its backward ends; of I, what W needs.

    Logits, temporary and communication buffers stand on top while actions run, so that the
    highest point is the predicted peak and the end is back at the static bytes.
    """
    table = PlanTable.of([plan])
    kept = stage_kept(layers, layer_counts(job.model, stage_cut(job, table)))[:, 0]
    peak, static = found.memory.peak[:, 0], found.memory.static[:, 0]
    frees = frees_before_weights(job, table, found.graph.schedule)
    after = kept_for_weights(job, table, layers)[:, 0] if frees else kept
    for rank in range(plan.pp):
        stages = list(found.graph.schedule.stages_on(rank))
        mine = [item for item in placed if item.rank == rank]
        times, counts = _in_flight(mine, stages, frees=frees)
        held = counts @ np.concatenate([kept[stages], after[stages]])
        buffers = float(peak[rank] - static[rank] - held.max())
        on_top = np.where(times < times[-1], buffers, 0.0)
        level = float(static[rank]) + held + on_top
        yield MemoryCurve(
            rank=rank,
            times=tuple(times.tolist()),
            bytes=tuple(level.tolist()),
            static=float(static[rank]),
            activations=tuple(held.tolist()),
        )


def _in_flight(
    placed: list[Placed], stages: list[int], *, frees: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Micro-batches in flight on each stage over time, zero before the first action.

    Behind the stages' columns are those of micro-batches that wait for their W only, where I frees
    what W does not need. Whole numbers, so that nothing is left over at the end; what ends at a
    moment is freed before what starts then.
    """
    changes: list[tuple[float, int, int]] = []
    for item in placed:
        kind, chunk = item.action.kind, stages.index(item.action.stage)
        waiting = len(stages) + chunk
        if kind == Kind.F:
            changes.append((item.start, 1, chunk))
        elif kind == Kind.I and frees:
            changes += [(item.end, -1, chunk), (item.end, 1, waiting)]
        elif kind != Kind.I:
            changes.append((item.end, -1, waiting if kind == Kind.W and frees else chunk))
    changes.sort()
    steps = np.zeros((len(changes) + 1, 2 * len(stages)))
    for i, (_, change, column) in enumerate(changes, start=1):
        steps[i, column] = change
    times = np.array([0.0, *(time for time, _, _ in changes)])
    return times, steps.cumsum(axis=0)


def _critical(
    found: Evaluation,
    placed: list[Placed],
    number: dict[tuple[int, str, int, int], int],
) -> list[int]:
    """Walk back from the last action: whichever predecessor ends when this one starts."""
    by_key = {tuple(item.action): item for item in placed}
    before: dict[tuple[int, ...], Placed] = {}
    last: dict[int, Placed] = {}
    for item in placed:
        if item.rank in last:
            before[tuple(item.action)] = last[item.rank]
        last[item.rank] = item
    at: Placed | None = max(last.values(), key=lambda item: item.free)
    path: list[int] = []
    while at is not None:
        path.append(number[(at.rank, at.action.kind.name, at.action.stage, at.action.microbatch)])
        at = _cause(found, at, before.get(tuple(at.action)), by_key)
    return path[::-1]


def _cause(
    found: Evaluation,
    item: Placed,
    previous: Placed | None,
    by_key: dict[tuple[int, ...], Placed],
) -> Placed | None:
    """The predecessor that let an action start last."""
    stage, kind, microbatch = item.action
    last_stage = found.graph.schedule.num_stages - 1
    source: Placed | None = None
    if kind == Kind.F and stage > 0:
        source = by_key[(stage - 1, Kind.F, microbatch)]
    elif kind == Kind.B or kind == Kind.I:
        source = (
            by_key[(stage, Kind.F, microbatch)]
            if stage == last_stage
            else by_key.get((stage + 1, Kind.B, microbatch))
            or by_key[(stage + 1, Kind.I, microbatch)]
        )
    if source is None or previous is None:
        return source or previous
    return source if source.arrival >= previous.free else previous
