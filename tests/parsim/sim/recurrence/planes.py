"""Tier B where ranks differ: clocks are (dp, tp) planes, one for each pipeline rank.

All ranks of a pipeline rank run the same actions, so each action is executed once, on a plane:

    compute      plane + duration x slowdown       each rank at its own speed
    tensor       maximum over the tp axis          the group meets in the collectives of an action
    message      maximum with the sender's plane   between equal (dp, tp) coordinates
    reduction    maximum over the dp axis          gradient buckets and parameter gathers
    norm         maximum over everything           the step's barrier

It knows the recurrence of actions (`ClassTimes`) and nothing of step programs: what follows the
pipeline is written out here. With every slowdown 1 its times are those of `maxplus` and `walk`, to
the last bit, also with costs of each replica (nodes of several kinds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.cost.step.costs import StepCosts
from parsim.errors import InputError
from parsim.schedule import Kind, Schedule
from parsim.sim.lateness.late_replicas import messages
from parsim.sim.recurrence.maxplus import ClassTimes, last_backwards
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule, compile_schedule
from parsim.sim.step.schedule_costs import compute_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneRun:
    """Times of every rank, seconds.

    `clock`, `reduced`, `updated` (pp, dp, tp) are the ends of a rank's last action, gradient
    reduction and update; the norm's `barrier` and `step_time` are the whole step's.
    """

    clock: Array
    reduced: Array
    updated: Array
    barrier: float
    step_time: float


class PipelineEnds(NamedTuple):
    """Times of the pipeline phase.

    `clock` (pp, dp, tp) is the end of each rank's last action, `made` (S, dp, tp) when a stage's
    gradients are complete, `length` that of the backward that completed them.
    """

    clock: Array
    made: Array
    length: Array


def run_planes(
    schedule: Schedule | CompiledSchedule, costs: StepCosts, slowdown: Array
) -> PlaneRun:
    """Simulate a step of pp x dp x tp ranks, each with its own speed.

    A slowdown multiplies what a rank computes, in actions and in the optimizer step; collectives
    and messages keep their length. Leaves out that replicas of ZeRO-2 and 3 also meet inside
    actions, and ranks that change the order of their actions when they are late.

    Args:
        schedule: actions of each pipeline rank; a compiled graph saves compiling it again.
        costs: of one plan, or a column for each of its dp replicas (`class_costs`).
        slowdown: (pp, dp, tp), 1 for a rank as fast as the costs say, 1.25 for one 25 % slower.

    Raises:
        InputError: the slowdowns have another shape or sign, or the costs are of many plans.
    """
    graph = whole_graph(schedule)
    slowdown = np.asarray(slowdown, dtype=np.float64)
    _check(graph, costs, slowdown)
    done = _pipeline(graph, costs, slowdown)
    reduced = np.maximum(done.clock, reduce_gradients(graph, costs, done))
    owners = graph.schedule.stage_rank[0], graph.schedule.stage_rank[-1]
    reduced = add_tied(reduced, costs.tied[:, None], owners)
    barrier = reduced.max() + costs.late[0]
    update = barrier + costs.norm[0] + costs.optimizer[:, :, None] * slowdown
    updated = update.max(axis=1, keepdims=True) + costs.gather[:, :, None]
    step_time = updated.max() * (1.0 + costs.straggler[0])
    return PlaneRun(
        clock=done.clock,
        reduced=reduced,
        updated=np.broadcast_to(updated, slowdown.shape),
        barrier=float(barrier),
        step_time=float(step_time),
    )


def step_time_with_slowdown(
    schedule: Schedule | CompiledSchedule, costs: StepCosts, slowdown: Array
) -> float:
    """Seconds of a step whose ranks differ in speed; see `run_planes`."""
    return run_planes(schedule, costs, slowdown).step_time


def whole_graph(schedule: Schedule | CompiledSchedule) -> CompiledSchedule:
    """The graph of every action, none of them folded by repetition."""
    if isinstance(schedule, Schedule):
        return compile_schedule(schedule)
    return schedule if schedule.repeats == 1 else compile_schedule(schedule.schedule)


def _check(graph: CompiledSchedule, costs: StepCosts, slowdown: Array) -> None:
    pp = graph.schedule.pp
    if slowdown.ndim != 3 or slowdown.shape[0] != pp or not slowdown.size:
        raise InputError(
            f"slowdown has shape {slowdown.shape}; it must be (pp, dp, tp) with pp={pp}, "
            f"one multiplier for each rank"
        )
    if not np.isfinite(slowdown).all() or (slowdown < 0).any():
        raise InputError(
            f"slowdown has the value {_first_bad(slowdown)}; a multiplier must be finite and at "
            f"least 0 (1: as fast as the costs say)"
        )
    if costs.num_plans not in (1, slowdown.shape[1]):
        raise InputError(f"costs of {costs.num_plans} plans given; take one with costs.rows")


def _first_bad(slowdown: Array) -> float:
    return float(slowdown[~np.isfinite(slowdown) | (slowdown < 0)][0])


def _added(graph: CompiledSchedule, costs: StepCosts, slowdown: Array) -> dict[Kind, list[Array]]:
    """Seconds that slow ranks add to an action of each stage, planes (dp, tp), by kind.

    They come on top of the unchanged duration and are zero at slowdown 1, so that nothing is
    rounded anew.
    """
    more, rank_of = slowdown - 1.0, graph.schedule.stage_rank
    return {
        kind: [
            values_of_stage[:, None] * more[rank]
            for values_of_stage, rank in zip(values, rank_of, strict=True)
        ]
        for kind, values in compute_seconds(costs).items()
    }


def _pipeline(graph: CompiledSchedule, costs: StepCosts, slowdown: Array) -> PipelineEnds:
    """Walk the actions in the graph's order; a message waits in a box for its one receiver."""
    times = ClassTimes.of(graph, costs)
    times = times.blocking() if costs.blocking_p2p else times
    duration, hop = _seconds(times.duration), _seconds(times.hop)
    added = _added(graph, costs, slowdown)
    needs, sends = messages(graph)
    final = set(graph.last_backward.tolist())
    clock = list(np.zeros_like(slowdown))
    box: dict[int, Array] = {}
    ends: dict[int, Array] = {}
    actions = zip(graph.rank.tolist(), graph.duration_class.tolist(), needs, sends, strict=True)
    for index, (rank, what, needed, sent) in enumerate(actions):
        stage, kind = divmod(what, KINDS)
        start = clock[rank] if needed < 0 else np.maximum(clock[rank], box.pop(needed))
        end = start + added[Kind(kind)][stage]
        end[:] = end.max(axis=1, keepdims=True)  # the tensor-parallel group meets
        end += duration[what]
        clock[rank] = end
        if sent:
            box[index] = end + hop[what]
        if index in final:
            ends[index] = end
    return _backwards_done(graph, costs, clock, ends, added)


def _seconds(values: Array) -> list[float] | list[Array]:
    """A number for each class of actions, or a column (dp, 1) where replicas differ."""
    return values[:, 0].tolist() if values.shape[1] == 1 else list(values[:, :, None])


def _backwards_done(
    graph: CompiledSchedule,
    costs: StepCosts,
    clock: list[Array],
    ends: dict[int, Array],
    added: dict[Kind, list[Array]],
) -> PipelineEnds:
    """Take the blocking send off the end of each stage's last backward; its group's length."""
    lengths, sent = last_backwards(graph, costs)
    made = np.stack([ends[index] for index in graph.last_backward.tolist()]) - sent[:, :, None]
    kinds = (graph.duration_class[graph.last_backward] % KINDS).tolist()
    late = [added[Kind(kind)][stage] for stage, kind in enumerate(kinds)]
    slowest = np.stack(late).max(axis=2, keepdims=True)
    return PipelineEnds(np.stack(clock), made, lengths[:, :, None] + slowest)


def chunk_order(graph: CompiledSchedule) -> list[list[int]]:
    """Stages of each rank in the order in which their gradients are complete."""
    order: list[list[int]] = []
    for rank in range(graph.schedule.pp):
        stages = graph.schedule.stages_on(rank)
        order.append(sorted(stages, key=lambda s: int(graph.last_backward[s])))
    return order


def reduce_gradients(graph: CompiledSchedule, costs: StepCosts, done: PipelineEnds) -> Array:
    """End of each rank's gradient reduction.

    K buckets of c seconds over a last backward of L seconds ending at f: bucket k is ready at
    f - L + k L / K, so the stream is free at max(free + K c, f - L + L/K + K c, f + c).

    A bucket starts when the slowest replica has made it. Replicas make their buckets at an even
    pace, and the latest of even paces is latest at the first or the last bucket, so that the same
    two terms are enough.
    """
    out = np.empty_like(done.clock)
    for rank, stages in enumerate(chunk_order(graph)):
        free = np.zeros(out.shape[2])
        for stage in stages:
            count, each = costs.buckets[stage, 0], costs.bucket_time[stage, 0]
            made, length = done.made[stage], done.length[stage]
            if costs.overlap_reduce:
                first = (made - length + length / count).max(axis=0)
                free = np.maximum(np.maximum(free, first) + count * each, made.max(axis=0) + each)
            else:
                free = np.maximum(free, done.clock[rank].max(axis=0)) + count * each
        out[rank] = free
    return out


def add_tied(reduced: Array, tied: Array | float, owners: tuple[int, int]) -> Array:
    """All-reduce of the tied embedding between the two pipeline ranks that hold it."""
    first, last = owners
    if first != last and np.max(tied) > 0:
        reduced[first] = reduced[last] = np.maximum(reduced[first], reduced[last]) + tied
    return reduced
