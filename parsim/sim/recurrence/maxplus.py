"""When each action of a schedule ends: a recurrence of sums and maxima (tier B).

    start[i]  = max(finish[previous on the rank], arrival[input of i])
    finish[i] = start[i] + duration[i];   arrival[i] = finish[i] + hop[i]

A blocking send keeps the sender's compute stream: then the hop belongs to the duration and the
message arrives when the send ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.step.costs import StepCosts
from parsim.schedule import Kind, Schedule
from parsim.sim.recurrence.walk import Join, PipelineEnds, StepEnd, apart, walk
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule
from parsim.sim.step.priced_step import prices_of, program_of
from parsim.sim.step.schedule_costs import action_seconds

TABLE_ELEMENTS = 4_000_000
"""Largest finish table (actions x plans) held at once: 32 MB."""

COMPILED_FROM = 500_000
"""Smallest finish table for which numba, where installed, is worth its import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTimes:
    """Durations and hops per class (stage x kind), shape (C, B)."""

    duration: Array
    hop: Array

    @classmethod
    def of(cls, compiled: CompiledSchedule, costs: StepCosts) -> ClassTimes:
        """Spread the costs of a plan's stages over the schedule's duration classes.

        Forward sends to the next stage, backward and its I to the one before; nothing is sent to
        a stage on the same rank.
        """
        return cls.on(compiled.schedule, action_seconds(costs), costs.hop[:-1])

    @classmethod
    def on(cls, schedule: Schedule, seconds: Mapping[Kind, Array], hops: Array) -> ClassTimes:
        """Spread seconds by kind (S, B) and those of messages behind each stage but the last."""
        stages, plans = seconds[Kind.F].shape
        duration = np.zeros((stages * KINDS, plans))
        hop = np.zeros_like(duration)
        for kind, values in seconds.items():
            duration[kind::KINDS] = values
        rank, ends = np.array(schedule.stage_rank), np.arange(1, stages) % schedule.depth == 0
        moves = ((rank[1:] != rank[:-1]) & ~ends)[:, None]
        between = np.where(moves, hops, 0.0)
        hop[Kind.F : (stages - 1) * KINDS : KINDS] = between
        hop[KINDS + Kind.B :: KINDS] = between
        hop[KINDS + Kind.I :: KINDS] = between
        return cls(duration=duration, hop=hop)

    def blocking(self) -> ClassTimes:
        """These times with sends on the compute stream."""
        return ClassTimes(duration=self.duration + self.hop, hop=np.zeros_like(self.hop))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What tier B found, seconds.

    `clock` (p, B) is the end of each rank's last action, `last_end` (S, B) the end of the action
    that completes each stage's gradients, `finish` (A, B) the end of every action in the graph's
    order where it was asked for.
    """

    clock: Array
    last_end: Array
    finish: Array | None


def run(compiled: CompiledSchedule, times: ClassTimes, *, keep: bool = False) -> Run:
    """Evaluate B plans of one shape.

    Plans are taken in blocks so that the table of finish times stays small.
    """
    plans = times.duration.shape[1]
    block = max(1, min(plans, TABLE_ELEMENTS // (compiled.num_actions + 1)))
    parts = [
        _block(compiled, times.duration[:, i : i + block], times.hop[:, i : i + block], keep)
        for i in range(0, plans, block)
    ]
    return Run(
        clock=np.concatenate([part.clock for part in parts], axis=1),
        last_end=np.concatenate([part.last_end for part in parts], axis=1),
        finish=np.concatenate([p.finish for p in parts if p.finish is not None], axis=1)
        if keep
        else None,
    )


def _block(compiled: CompiledSchedule, duration: Array, hop: Array, keep: bool) -> Run:
    """Fill one table of finish times; row 0 stands for "no predecessor"."""
    finish = np.empty((compiled.num_actions + 1, duration.shape[1]))
    finish[0] = 0.0
    sweep = _compiled() if finish.size >= COMPILED_FROM else None
    if sweep is None:
        _by_levels(compiled, duration, hop, finish)
    else:
        classes = (compiled.duration_class, sender_class(compiled))
        sweep(compiled.before, compiled.source, *classes, duration.copy(), hop.copy(), finish)
    return Run(
        clock=finish[compiled.final],
        last_end=finish[compiled.last_backward + 1],
        finish=finish[1:] if keep else None,
    )


@cache
def _compiled() -> Callable[..., None] | None:
    """The numba loop, where the extra `fast` is installed."""
    if find_spec("numba") is None:
        return None
    from parsim.sim.recurrence.numba_sweep import sweep

    compiled_sweep: Callable[..., None] = sweep
    return compiled_sweep


def _by_levels(compiled: CompiledSchedule, duration: Array, hop: Array, finish: Array) -> None:
    """Level by level: both predecessors' finish times in one gather, both costs in another.

    `out` buffers and `mode="clip"` (indices are right by construction) spare numpy a copy of
    every gather.
    """
    costs = np.concatenate([duration, hop])
    predecessors = _in_pairs(compiled, compiled.before, compiled.source)
    classes = _in_pairs(compiled, compiled.duration_class, len(duration) + sender_class(compiled))
    widest = 2 * int(np.diff(compiled.bounds).max())
    ends, seconds = np.empty((widest, finish.shape[1])), np.empty((widest, finish.shape[1]))
    for low, high in pairwise(compiled.bounds.tolist()):
        n, pair = high - low, slice(2 * low, 2 * high)
        finish.take(predecessors[pair], axis=0, out=ends[: 2 * n], mode="clip")
        costs.take(classes[pair], axis=0, out=seconds[: 2 * n], mode="clip")
        start, arrival = ends[:n], ends[n : 2 * n]
        arrival += seconds[n : 2 * n]
        np.maximum(start, arrival, out=start)
        np.add(start, seconds[:n], out=finish[low + 1 : high + 1])


def _in_pairs(compiled: CompiledSchedule, first: Index, second: Index) -> Index:
    """Two numbers per action; of each level all the first ones, then all the second ones."""
    low, width = compiled.bounds[:-1], np.diff(compiled.bounds)
    position = np.arange(compiled.num_actions) + np.repeat(low, width)
    pairs = np.empty(2 * compiled.num_actions, dtype=np.int64)
    pairs[position] = first
    pairs[position + np.repeat(width, width)] = second
    return pairs


def sender_class(compiled: CompiledSchedule) -> Index:
    """Whose hop an action's input took; stage 0's backward, which sends nothing, if it had none."""
    return np.where(compiled.source > 0, compiled.duration_class[compiled.source - 1], int(Kind.B))


def step_end(
    compiled: CompiledSchedule, costs: StepCosts, result: Run, join: Join = apart
) -> StepEnd:
    """Finish the step after the pipeline phase; columns are plans, or classes that `join` joins."""
    program = program_of([compiled.schedule], costs)
    return walk(program, prices_of(costs), pipeline_ends(compiled, costs, result), join)


def pipeline_ends(compiled: CompiledSchedule, costs: StepCosts, result: Run) -> PipelineEnds:
    """When ranks end their actions and stages complete their gradients."""
    length, sent = last_backwards(compiled, costs)
    return PipelineEnds(result.clock, result.last_end - sent, length)


def last_backwards(compiled: CompiledSchedule, costs: StepCosts) -> tuple[Array, Array]:
    """Seconds of the action that completes each stage's gradients, and of its send, (S, B).

    A blocking send is on the compute stream behind a B; a W sends nothing.
    """
    by_weight = (compiled.duration_class[compiled.last_backward] % KINDS == Kind.W)[:, None]
    sent = np.zeros_like(costs.hop)
    if costs.blocking_p2p:
        rank = np.array(compiled.schedule.stage_rank)
        moves = (rank[1:] != rank[:-1])[:, None] & ~by_weight[1:]
        sent[1:] = np.where(moves, costs.hop[:-1], 0.0)
    seconds = action_seconds(costs)
    return np.where(by_weight, seconds[Kind.W], seconds[Kind.B]), sent
