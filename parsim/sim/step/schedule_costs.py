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
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, ratio
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import final_gather
from parsim.cost.data.update import norm_time, update_time
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.head_copies import copied_outputs
from parsim.cost.layer.interference import speed_beside
from parsim.cost.layer.passes import Pass
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.pair_sums import copies_seconds
from parsim.cost.step.parameters import per_rank
from parsim.cost.step.stage_times import raced, repeated_pass, stage_pass
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import StepCosts, deeper_pass, filling, stage_cut
from parsim.model.layer import Layer
from parsim.model.operators import Experts, Linear, Split
from parsim.plan import PlanTable
from parsim.plan.schedule_names import SPLIT
from parsim.schedule import Kind, Schedule
from parsim.sim.step.evictions import with_evictions
from parsim.sim.step.split_backward import is_split, splits_like_torch

_OF_STAGES = (
    *("forward", "backward", "exposed_forward", "exposed_backward", "recomputed", "hop"),
    *("buckets", "bucket_time", "parameters", "weight"),
    *("experts", "copied_forward", "copied_backward"),
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
    parts = _in_two(job, table, layers, costs.backward)
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
        data, by_rank = DataParallel.of(job, table), on_ranks(costs.parameters, schedule)
        values["hop"] = _hops(costs.hop, schedule)
        speed = speed_beside(job.system, data.busbw, layers.kinds)
        first = on_ranks(costs.forward, schedule)
        routed = None if costs.experts is None else on_ranks(costs.experts, schedule)
        values["norm"] = norm_time(data, by_rank, routed)
        values["optimizer"] = update_time(data, by_rank, routed)
        in_order = schedule.stage_rank[: schedule.pp] == tuple(range(schedule.pp))
        idle = filling(costs.forward, schedule.pp) if in_order and schedule.copies == 1 else 0.0
        values["gather"] = final_gather(data, by_rank, first, speed, routed, idle)
        if schedule.stage_rank[0] == schedule.stage_rank[-1]:
            values["tied"] = np.zeros_like(costs.tied)
        if schedule.copies > 1:
            values["copies"] = copies_seconds(job, table, by_rank)
    return SplitCosts(**values)


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


class _InTwo(NamedTuple):
    """A backward in two: seconds of I and of W of each stage, (S, B).

    `recomputed` and `exposed` are what recomputation and its collectives take more of I than they
    take of a whole backward.
    """

    inner: Array
    weight: Array
    recomputed: Array
    exposed: Array


def _in_two(job: Job, table: PlanTable, layers: LayerTable, backward: Array) -> _InTwo:
    """A backward in two actions.

    W is the weight gradients of the matrix products and their accumulation. A product's weight
    gradient has the 2 m n k FLOPs of its forward, so W = forward seconds of the stage's products +
    seconds of adding to their gradients. I = B - W: recomputation, attention and norms are in I.
    Each races with the host that launches it, so that the two may be longer than a whole backward,
    in which one makes up for the other; sharded collectives are shared out in proportion. On stage
    0 all is W in PyTorch's runtime (`splits_like_torch`): nobody needs the gradient of the model's
    input.

    Source: arXiv 2401.10241, section 2, splits the backward there; `LayerCoster` prices the parts.
    Leaves out: that a weight gradient has other tiles than the forward; norms' own gradients; that
    a whole backward beside ones in two is not launched in two.
    """
    weights, once, again = _parts_of_backward(job, table, layers)
    between = 0.5 * job.software.between_microbatches
    plain, whole = (raced(job, layers, each) for each in (once, once.plus(again)))
    plain_inner, inner = (
        raced(job, layers, each.less(weights)) for each in (once, once.plus(again))
    )
    longer = ratio(backward, whole + between)
    more = longer * ((inner - plain_inner) - (whole - plain))
    inner, weight = longer * (inner + between), longer * raced(job, layers, weights)
    if splits_like_torch(job, table):
        inner[0], weight[0], more[0] = 0.0, backward[0], 0.0
    collectives = more * again.exposed_share
    return _InTwo(inner, weight, recomputed=more - collectives, exposed=collectives)


def _parts_of_backward(job: Job, table: PlanTable, layers: LayerTable) -> tuple[Pass, Pass, Pass]:
    """Split each stage's backward: weight gradients, one that repeats nothing, the repeat."""
    counts = layer_counts(job.model, stage_cut(job, table))
    rows = len(table)
    ours = [
        cost.products.plus(_accumulation(job, table, layer))
        for cost, layer in zip(layers.kinds, job.model.kinds, strict=True)
    ]
    last = layers.behind.products
    for layer in job.model.behind:
        last = last.plus(_accumulation(job, table, layer))
    kinds, nothing = [kind.backward for kind in layers.kinds], Pass.zero(rows)
    deeper = deeper_pass(job, table, layers)
    return (
        stage_pass(ours, counts, nothing, last),
        stage_pass(kinds, counts, layers.before.backward, layers.behind.backward),
        repeated_pass(layers, counts, deeper),
    )


def _accumulation(job: Job, table: PlanTable, layer: Layer) -> Pass:
    """Adding the weight gradients of a layer's products to those of earlier micro-batches.

    A kernel of its own reads 2 and 4 bytes an element and writes 4, or 2 + 2 into 2; fused into
    the product it costs nothing here.
    """
    added = Pass.zero(len(table))
    if not job.software.fused_gradient_accumulation:
        moved = 10.0 if table.common.gradient_precision == "fp32" else 6.0
        for op in layer.operators:
            if isinstance(op, Linear):
                split = 1 if op.split is Split.NONE else table.tp
                each = moved * op.inputs * op.outputs / split
                copied = moved * op.inputs * copied_outputs(op, table)
                added.add(memory_time(job.device, each + copied), 1)
            elif isinstance(op, Experts):
                parameters = op.expert_parameters / table.expert_ranks
                added.add(memory_time(job.device, moved * parameters), 2)
    return added
