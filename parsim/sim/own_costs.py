"""What a step costs where stages are on any rank or the backward is in two.

So it is with the zero-bubble schedules and with the user's own. `cost` knows no schedules: it
prices stages as the other named ones place them, stage s on rank s % pp, and a backward as a
whole. Here, where the two meet, prices follow the schedule:

    stage on rank    0 1 2 3 0 1 2 3    looped          0 1 2 3 3 2 1 0    a V
    hop behind it    > > > > > > >                      > > > . > > >      . is none: same rank
    tied table       all-reduce 0, 3                    nothing to send: both copies on rank 0

A tied table on two other ranks than the first and the last is priced as if on those two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from parsim.cost.crowding import speed_beside
from parsim.cost.job import Job
from parsim.cost.kernels import memory_time
from parsim.cost.passes import Pass
from parsim.cost.sharding import DataParallel
from parsim.cost.stages import LayerTable, layer_counts, per_rank
from parsim.cost.step import StepCosts, stage_cut
from parsim.model.operators import Experts, Layer, Linear, Split
from parsim.plan import PlanTable
from parsim.plan.rules import SPLIT
from parsim.schedule import Kind, Schedule
from parsim.sim.weight_memory import splits_like_torch

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCosts(StepCosts):
    """Costs of plans whose backward may be in two; `weight` (S, B) are the seconds of a W."""

    weight: Array


def weight_times(costs: StepCosts) -> Array:
    """Seconds of W, (S, B); half of the backward where the costs do not say."""
    return costs.weight if isinstance(costs, OwnCosts) else 0.5 * costs.backward


def exposed_parts(costs: StepCosts) -> tuple[Array, Array]:
    """Exposed communication inside I and inside W, (S, B).

    Tensor-parallel collectives belong to the gradient of the inputs, so they are in I as far as
    it is long enough.
    """
    inner = np.minimum(costs.exposed_backward, costs.backward - weight_times(costs))
    return inner, costs.exposed_backward - inner


def compute_seconds(costs: StepCosts) -> dict[Kind, Array]:
    """An action's time without exposed traffic, which a slow rank stretches; (S, B) by kind."""
    weight, (inner, outer) = weight_times(costs), exposed_parts(costs)
    return {
        Kind.F: costs.forward - costs.exposed_forward,
        Kind.B: costs.backward - costs.exposed_backward,
        Kind.I: costs.backward - weight - inner,
        Kind.W: weight - outer,
    }


def on_ranks(stages: Array, schedule: Schedule) -> Array:
    """Sum the stages that each pipeline rank holds: (S, B) -> (p, B)."""
    if is_looped(schedule):
        return per_rank(stages, schedule.pp)
    held = [stages[list(schedule.stages_on(rank))].sum(axis=0) for rank in range(schedule.pp)]
    return np.stack(held)


def is_looped(schedule: Schedule) -> bool:
    """Whether stage s is on rank s % pp and every rank has equally many, as `cost` assumes."""
    pp = schedule.pp
    return schedule.num_stages % pp == 0 and all(
        rank == stage % pp for stage, rank in enumerate(schedule.stage_rank)
    )


def own_costs(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, schedule: Schedule
) -> StepCosts:
    """Make `cost`'s prices those of the schedule; of one with whole backwards they stay."""
    if table.common.actions is None and schedule.name not in SPLIT:
        return costs
    values = {field.name: getattr(costs, field.name) for field in fields(costs)}
    values["weight"] = costs.backward * _weight_share(job, table, layers)
    if not is_looped(schedule):
        data, held = DataParallel.of(job, table), on_ranks(costs.parameters, schedule)
        values["hop"] = _hops(costs.hop, schedule)
        speed = speed_beside(job.system, data.shard, layers.kinds)
        first = on_ranks(costs.forward, schedule)
        routed = None if costs.experts is None else on_ranks(costs.experts, schedule)
        values["optimizer"] = data.optimizer(held, routed)
        values["gather"] = data.final_gather(held, first, speed, routed)
        if schedule.stage_rank[0] == schedule.stage_rank[-1]:
            values["tied"] = np.zeros_like(costs.tied)
    return OwnCosts(**values)


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


def _weight_share(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Share of a stage's backward that W takes, (S, B).

    W is the weight gradients of the matrix products and their accumulation. A product's weight
    gradient has the 2 m n k FLOPs of its forward, so W = forward seconds of the stage's products +
    seconds of adding to their gradients. I = B - W: recomputation, attention and norms are in I.
    Host time and sharded collectives are shared out in proportion. On stage 0 all is W in
    PyTorch's runtime (`splits_like_torch`): nobody needs the gradient of the model's input.

    Source: arXiv 2401.10241, section 2, splits the backward there; `LayerCoster` prices the parts.
    Leaves out: that a weight gradient has other tiles than the forward; norms' own gradients.
    """
    counts = layer_counts(job.model, stage_cut(job, table))
    rows = len(layers.boundary)
    ours = [
        cost.products.plus(_accumulation(job, table, layer))
        for cost, layer in zip(layers.kinds, job.model.kinds, strict=True)
    ]
    head = layers.head.products.plus(_accumulation(job, table, job.model.head))
    weights = _stages(counts, ours, Pass.zero(rows), head)
    pairs = zip(layers.kinds, layers.recomputed, strict=True)
    behind = [kind.backward.plus(again) for kind, again in pairs]
    whole = _stages(counts, behind, layers.embedding.backward, layers.head.backward)
    share = np.divide(weights, whole, out=np.zeros_like(whole), where=whole > 0)
    if splits_like_torch(job, table):
        share[0] = 1.0
    return np.minimum(share, 1.0)


def _accumulation(job: Job, table: PlanTable, layer: Layer) -> Pass:
    """Adding the weight gradients of a layer's products to those of earlier micro-batches.

    A kernel of its own reads 2 and 4 bytes an element and writes 4, or 2 + 2 into 2; fused into
    the product it costs nothing here.
    """
    found = Pass.zero(len(table))
    if not job.software.fused_gradient_accumulation:
        moved = 10.0 if table.common.gradient_precision == "fp32" else 6.0
        for op in layer.operators:
            if isinstance(op, Linear):
                split = 1 if op.split is Split.NONE else table.tp
                found.add(memory_time(job.device, moved * op.inputs * op.outputs / split), 1)
            elif isinstance(op, Experts):
                held = op.expert_parameters / table.expert_ranks
                found.add(memory_time(job.device, moved * held), 2)
    return found


def _stages(counts: Array, kinds: list[Pass], first: Pass, last: Pass) -> Array:
    """Device seconds of a pass on each stage, (S, B)."""
    found: Array = counts @ np.stack([kind.kernels + kind.exposed for kind in kinds])
    found[0] += first.kernels + first.exposed
    found[-1] += last.kernels + last.exposed
    return found
