"""What a plan needs at the least, without its schedule's actions: seconds of its step, bytes.

A pipeline rank r whose first stage is f is busy for its work, cannot begin before the first
micro-batch has passed the stages before f, and its last gradient has to pass them again:

    clock[r] >= lead(f) + m x (F + B of its stages);   lead(f) = sum of F before f
    clock[q] >= clock[r] + B of the stages from f - 1 down to rank q's

The second line is for whole backwards alone: behind its last I a rank may still have W to do.
With these times in place of the pipeline's, the same walk that ends every step (`step_end`) is a
lower bound of the step, as all of it are sums and maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.cost.step.stages import LayerTable
from parsim.cost.step.step import StepCosts, step_costs
from parsim.model.model import Model
from parsim.plan import PlanTable
from parsim.plan.rules import V_SHAPED, WHOLE
from parsim.schedule import build_schedule
from parsim.schedule.inflight import least_in_flight
from parsim.sim.memory.eager_peaks import least_peak
from parsim.sim.recurrence.maxplus import Run
from parsim.sim.recurrence.step_end import step_end
from parsim.sim.step.compiled_schedule import CompiledSchedule, compile_schedule
from parsim.sim.step.schedule_costs import on_schedule

ROUNDING = 1e-9
"""Share by which a bound may exceed a step by rounding alone."""


class PlanBounds(NamedTuple):
    """Least seconds of a step and least bytes of its fullest rank, (B,) each."""

    step: Array
    peak: Array


class EarliestEnds(NamedTuple):
    """When ranks can have run all their actions (p, C), and stages their backwards (S, C)."""

    clock: Array
    completed: Array


def growth(cluster: Cluster) -> float:
    """What every step grows by with its devices, less what rounding may take from a bound."""
    doublings = max(float(np.log2(cluster.num_devices / 8.0)), 0.0)
    straggler = max(system.straggler for system in cluster.systems)
    return (1.0 + straggler * doublings) * (1.0 - ROUNDING)


def shared_bound(
    tables: Sequence[LayerTable], table: PlanTable, model: Model, devices: Sequence[int]
) -> Array:
    """Seconds that no placement of a plan can be shorter than, (B,).

    M x sum over kinds j of layers (L_j u_j) x tp cp / sum over groups k (N_k s_k),  s_k = max_j
    u_j / l_kj

    M micro-batches in all, L_j layers of l_kj seconds forward and backward on group k's N_k
    devices, u_j those on group 0. A rank is busy for at least (its layers' u) / s_k of its slowest
    kind, and is so for no longer than the step; the sum over all ranks of both sides is the bound,
    whatever the cut and the batches are. Embedding and head are left out.
    """
    each = np.array(
        [
            [
                kind.forward.seconds + kind.backward.plus(again).seconds
                for kind, again in zip(priced.kinds, priced.recomputed, strict=True)
            ]
            for priced in tables
        ]
    )
    layers = np.array([model.blocks.count(kind) for kind in model.kinds], dtype=np.float64)
    work = np.einsum("k,kb->b", layers, each[0])
    speed = (each[0] / each).max(axis=1)
    power = np.array(devices, dtype=np.float64) @ speed
    microbatches = table.num_microbatches * table.dp
    return np.asarray(microbatches * work * table.tp * table.cp / power)


def earliest_ends(
    forward: Array,
    backward: Array,
    rank_of: Sequence[int],
    microbatches: Ints,
    *,
    whole: bool,
    hop: Array | None = None,
    blocking: bool = False,
) -> EarliestEnds:
    """When a pipeline's ranks and stages can be done at the earliest, for C cases.

    Args:
        forward: seconds of a stage's forward, (S, C).
        backward: of its backward, or of its I and W together, (S, C).
        rank_of: the rank of each stage.
        microbatches: of each case, (C,).
        whole: whether backwards are whole, and a rank's first stage is the last that it completes.
        hop: seconds of the message behind each stage, (S, C); none where not given.
        blocking: whether a message keeps its sender from computing.
    """
    message = np.zeros_like(forward) if hop is None else hop
    back = np.concatenate([np.zeros_like(message[:1]), message[:-1]])
    arrival = forward + message
    lead = np.cumsum(arrival, axis=0) - arrival
    work = microbatches * (forward + backward + (message + back if blocking else 0.0))
    ranks = np.array(rank_of)
    first = [int(np.flatnonzero(ranks == rank)[0]) for rank in range(max(rank_of) + 1)]
    clock = lead[first]
    np.add.at(clock, ranks, work)
    completed = lead + work
    if whole:
        for rank in sorted(range(len(first)), key=lambda r: -first[r]):
            stage = first[rank]
            completed[stage] = clock[rank]
            if stage == 0:
                continue
            # the send is in the clock where it blocks, and so is that of the stage that it goes to
            late = 0.0 if blocking else back[stage]
            sent = back[stage - 1] if blocking else 0.0
            below = rank_of[stage - 1]
            clock[below] = np.maximum(clock[below], clock[rank] + late + backward[stage - 1] + sent)
    elif len(first) == len(rank_of):
        completed = clock[ranks]
    return EarliestEnds(clock, completed)


def plan_bounds(job: Job, table: PlanTable, layers: LayerTable, twins: Ints) -> PlanBounds:
    """Bounds of B plans with equal pp and v.

    `twins` (B,) are numbers that only plans share which differ in their schedule alone: those are
    priced once.
    """
    _, rows, which = np.unique(twins, return_index=True, return_inverse=True)
    plans, priced = table.take(rows), layers.take(rows)
    costs = step_costs(job, plans, priced)
    step, peak = np.zeros(len(table)), np.zeros(len(table))
    names, name_of = np.unique(table.schedule, return_inverse=True)
    kinds = np.array([_kind(str(name), table) for name in names])[name_of]
    for kind in np.unique(kinds).tolist():
        chosen = np.flatnonzero(kinds == kind)
        some, back = np.unique(which[chosen], return_inverse=True)
        bounds = _kind_bounds(job, plans.take(some), priced.take(some), costs.take(some), kind)
        step[chosen], peak[chosen] = bounds.step[back], bounds.peak[back]
    return PlanBounds(step, peak)


def _kind(name: str, table: PlanTable) -> str:
    """The schedule that stands for a named one: stages on the same ranks, backwards cut alike."""
    if table.common.actions is not None:
        return name
    if int(table.pp[0]) == 1:
        return "1f1b"
    return name if name in WHOLE else "zb_v" if name in V_SHAPED else "zb_h1"


def _kind_bounds(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, kind: str
) -> PlanBounds:
    """Bounds of plans whose schedules are of one kind."""
    compiled = _fewest(kind, table)
    schedule = compiled.schedule
    costs = on_schedule(job, table, layers, costs, schedule)
    ends = _ends(compiled, costs, table.num_microbatches)
    tail = costs
    if kind in V_SHAPED:  # whose ranks complete their two stages in either order
        tail = replace(costs, bucket_time=np.zeros_like(costs.bucket_time))
    run = Run(clock=ends.clock, last_end=ends.completed, finish=None)
    step = step_end(compiled, tail, run).step_time * (1.0 - ROUNDING)
    in_flight = least_in_flight(
        kind, schedule.pp, len(schedule.stage_rank) // schedule.pp, table.num_microbatches
    )
    peak = least_peak(job, table, layers, costs, schedule, in_flight.astype(np.float64))
    return PlanBounds(step, peak.max(axis=0) * (1.0 - ROUNDING))


def _fewest(kind: str, table: PlanTable) -> CompiledSchedule:
    """The schedule of a kind with the fewest micro-batches, or the user's own."""
    pp, v, common = int(table.pp[0]), int(table.v[0]), table.common
    count = pp if kind == "interleaved_1f1b" else 1
    if common.actions is not None:
        count = int(table.num_microbatches[0])
    return compile_schedule(
        build_schedule(kind, pp=pp, num_microbatches=count, v=v, actions=common.actions)
    )


def _ends(compiled: CompiledSchedule, costs: StepCosts, microbatches: Ints) -> EarliestEnds:
    """`earliest_ends` of priced plans; naive parallelism is one micro-batch, again and again."""
    name, rank_of = compiled.schedule.name, compiled.schedule.stage_rank
    once = name == "naive"
    ends = earliest_ends(
        costs.forward,
        costs.backward,
        rank_of,
        np.ones_like(microbatches) if once else microbatches,
        whole=name in WHOLE,
        hop=costs.hop,
        blocking=costs.blocking_p2p,
    )
    before = (microbatches - 1) * ends.clock[0] * once
    return EarliestEnds(ends.clock + before, ends.completed + before)
