"""What a step costs on its schedule: stages on any rank, a backward whole or in two.

`cost` knows no schedules: it prices stages as most named ones place them, stage s on rank s % pp,
and a backward as a whole. Here, where the two meet, prices follow the schedule:

    stage on rank    0 1 2 3 0 1 2 3    looped          0 1 2 3 3 2 1 0    a V
    hop behind it    > > > > > > >                      > > > . > > >      . is none: same rank
    tied table       all-reduce 0, 3                    nothing to send: both copies on rank 0

A tied table on two other ranks than the first and the last is priced as if on those two. Of a
schedule with two copies of the model both copies of a stage cost the same, and behind the step the
two ranks that hold the same stages add up their gradients, a tied table's among them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.update import update_prices
from parsim.cost.job import Job
from parsim.cost.layer.interference import speed_beside
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.pair_sums import copies_seconds
from parsim.cost.step.stages import per_rank
from parsim.cost.step.step import filling
from parsim.plan import PlanTable
from parsim.plan.names import SPLIT
from parsim.schedule import Kind, Schedule
from parsim.sim.step.backward_in_two import in_two
from parsim.sim.step.kept_bytes import is_split, with_evictions

_OF_STAGES = (
    *("forward", "backward", "exposed_forward", "exposed_backward", "recomputed", "hop"),
    *("buckets", "bucket_time", "parameters", "trained", "weight"),
    *("experts", "trained_experts", "originals"),
    *("copied_forward", "copied_backward"),
)
"""Prices that a stage has, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCosts(StepCosts):
    """Costs of plans whose backward may be in two; `weight` (S, B) are the seconds of a W."""

    weight: Array


def action_seconds(costs: StepCosts) -> dict[Kind, Array]:
    """Seconds of an action of each kind on each stage, (S, B); unpriced I and W are half a B."""
    weight = costs.weight if isinstance(costs, SplitCosts) else 0.5 * costs.backward
    return {
        Kind.F: costs.forward,
        Kind.B: costs.backward,
        Kind.I: costs.backward - weight,
        Kind.W: weight,
    }


def exposed_seconds(costs: StepCosts) -> dict[Kind, Array]:
    """Exposed communication inside an action of each kind, (S, B).

    Collectives of a backward in two belong to the gradient of the inputs, so they are in I as far
    as it is long enough.
    """
    inner = np.minimum(costs.exposed_backward, action_seconds(costs)[Kind.I])
    return {
        Kind.F: costs.exposed_forward,
        Kind.B: costs.exposed_backward,
        Kind.I: inner,
        Kind.W: costs.exposed_backward - inner,
    }


def compute_seconds(costs: StepCosts) -> dict[Kind, Array]:
    """Seconds of an action's kernels, which a slow rank stretches, (S, B)."""
    exposed = exposed_seconds(costs)
    return {kind: seconds - exposed[kind] for kind, seconds in action_seconds(costs).items()}


def on_ranks(stages: Array, schedule: Schedule) -> Array:
    """Sum the stages that each pipeline rank holds: (S, B) -> (p, B)."""
    if is_looped(schedule):
        return per_rank(stages, schedule.pp)
    sums = [stages[list(schedule.stages_on(rank))].sum(axis=0) for rank in range(schedule.pp)]
    return np.stack(sums)


def is_looped(schedule: Schedule) -> bool:
    """Whether stage s is on rank s % pp and every rank has equally many, as `cost` assumes."""
    pp = schedule.pp
    return schedule.num_stages % pp == 0 and all(
        rank == stage % pp for stage, rank in enumerate(schedule.stage_rank)
    )


def on_schedule(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, schedule: Schedule
) -> StepCosts:
    """Make `cost`'s prices those of the schedule; of one with whole backwards they stay."""
    looped = is_looped(schedule)
    if schedule.limit is not None:
        return with_evictions(job, table, layers, costs, schedule)
    if table.common.actions is None and schedule.name not in SPLIT and looped:
        return costs
    values = {field.name: getattr(costs, field.name) for field in fields(costs)}
    parts = in_two(job, table, layers, costs.backward)
    values["weight"] = parts.weight
    if schedule.name in SPLIT or is_split(schedule):
        values["backward"] = parts.inner + parts.weight
        values["recomputed"] = costs.recomputed + parts.recomputed
        values["exposed_backward"] = costs.exposed_backward + parts.exposed
    if schedule.copies > 1:
        names = [name for name in _OF_STAGES if values[name] is not None]
        values |= {name: schedule.in_copies(values[name]) for name in names}
        costs = replace(costs, **{name: values[name] for name in names if name != "weight"})
    if not looped:
        values |= _placed(job, table, layers, costs, schedule)
    return SplitCosts(**values)


def _placed(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, schedule: Schedule
) -> dict[str, Array]:
    """Prices that are others where stages are on other ranks than `cost` places them on."""
    data, trained = DataParallel.of(job, table), costs.updated.by(lambda s: on_ranks(s, schedule))
    in_order = schedule.stage_rank[: schedule.pp] == tuple(range(schedule.pp))
    fills = in_order and schedule.copies == 1
    values = update_prices(
        data,
        *trained,
        first=on_ranks(costs.forward, schedule),
        speed=speed_beside(job.system, data.busbw, layers.kinds),
        idle=filling(costs.forward, schedule.pp) if fills else 0.0,
        backward=on_ranks(costs.backward, schedule),
    )
    values["hop"] = _hops(costs.hop, schedule)
    if schedule.stage_rank[0] == schedule.stage_rank[-1]:
        values["tied"] = np.zeros_like(costs.tied)
    if schedule.copies > 1:
        values["copies"] = copies_seconds(job, table, trained.parameters)
    return values


def _hops(hop: Array, schedule: Schedule) -> Array:
    """Messages between the ranks that really send them.

    The first rows of `hop` are those between neighbouring ranks. Ranks fill nodes in order, so a
    message from rank a to rank b leaves a node where one between neighbours from a to b does, and
    costs what that one costs: the largest of them.
    """
    out = np.zeros_like(hop)
    rank_of = schedule.stage_rank
    for stage in range(len(rank_of) - 1):
        low, high = sorted(rank_of[stage : stage + 2])
        if low != high:
            out[stage] = hop[low:high].max(axis=0)
    return out
