"""A plan's step as tier C runs it: its schedule, its prices, and what of them is traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parsim.cluster.topology import Graph
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.sharding import DataParallel
from parsim.cost.stages import LayerTable, layer_counts
from parsim.cost.step import StepCosts, stage_cut
from parsim.plan import Plan, PlanTable
from parsim.schedule import Kind, Schedule
from parsim.sim.evaluate import evaluate
from parsim.sim.fair_share import Array
from parsim.sim.inner import exchanges
from parsim.sim.own_costs import weight_times
from parsim.sim.simulate import plan_shape
from parsim.sim.step_traffic import Role, Sent, members, step_traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficParts:
    """Idle seconds of the traffic inside a stage's actions, (S,).

    `shard` by kind of action: gathers and scatters beside it; of a backward in two the gathers are
    in I and the scatters in W, with those gathers that I is too short for. `context` and `routed`
    are the shares of exposed exchanges between context ranks and between experts' ranks. `layer` is
    the share of an action that follows its last gather; 1 where shards do not overlap compute.
    `scatter` is the share of a gradient bucket's time that its reduce-scatter takes.
    """

    shard: dict[Kind, Array]
    context: Array
    routed: Array
    layer: dict[Kind, Array]
    scatter: Array


def traffic_parts(
    job: Job, plan: Plan, layers: LayerTable, costs: StepCosts, exposed: Array
) -> TrafficParts:
    """What of a stage's time is traffic, as the closed forms see it.

    `exposed` are the seconds of a forward's exposed exchanges, (S,).
    """
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, stage_cut(job, table))
    data, here = DataParallel.of(job, table), costs.parameters
    pieces = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    routed = costs.experts
    each = here / pieces, None if routed is None else routed / pieces
    gather = (pieces * data.gather(*each))[:, 0] * (plan.zero_stage == 3)
    scatter = (pieces * data.scatter(*each))[:, 0] * (plan.zero_stage >= 2)
    inputs = np.minimum(gather, (costs.backward - weight_times(costs))[:, 0])
    one_bucket = here / costs.buckets, None if routed is None else routed / costs.buckets
    bucket = data.scatter(*one_bucket)[:, 0] * (plan.zero_stage == 1)
    seconds = costs.bucket_time[:, 0]
    core = counts @ np.stack([kind.core.exposed[0] for kind in layers.kinds])
    one = 1.0 / pieces[:, 0]
    last = np.ones_like(one)
    behind = one if plan.overlap_grad_reduce else last
    return TrafficParts(
        shard={
            Kind.F: gather,
            Kind.B: gather + scatter,
            Kind.I: inputs,
            Kind.W: gather - inputs + scatter,
        },
        context=_share(core, exposed)
        if plan.tp > 1 or plan.ep > 1
        else np.full(len(one), float(plan.cp > 1)),
        routed=_share(counts @ np.stack([kind.routed.exposed[0] for kind in layers.kinds]), exposed)
        if plan.ep > 1
        else np.zeros(len(one)),
        layer={
            Kind.F: one if plan.overlap_param_gather else last,
            **dict.fromkeys((Kind.B, Kind.I, Kind.W), behind),
        },
        scatter=np.minimum(_share(bucket, seconds), 1.0),
    )


def _share(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyStep:
    """One plan's step; `costs` has one plan (B = 1).

    `alone` is tier B's step time, `inside` the exposed exchanges of each kind of action by stage,
    `sent` the kinds of traffic, `slow` by how much the devices of each pipeline rank compute longer
    (1 where none is slow).
    """

    plan: Plan
    schedule: Schedule
    costs: StepCosts
    alone: float
    inside: Mapping[Kind, Array]
    parts: TrafficParts
    sent: Mapping[Role, Sent]
    slow: tuple[float, ...]


def ready_step(
    job: Job,
    plan: Plan,
    graph: Graph,
    whole: Graph | None = None,
    slow: Mapping[int, float] | None = None,
) -> ReadyStep:
    """Price one plan and find its traffic.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        graph: the links, with the job's ranks on their devices.
        whole: the links on which the closed forms hold, where `graph` is not it.
        slow: ranks whose compute takes so many times as long.

    Raises:
        PlanError: the plan is not legal.
    """
    check_legal(job, plan)
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    found = evaluate(job, table, plan_shape(plan), layers)
    schedule, costs = found.graph.schedule, found.costs
    inside = exchanges(job, plan, layers, costs)
    return ReadyStep(
        plan=plan,
        schedule=schedule,
        costs=costs,
        alone=float(found.step_time[0]),
        inside=inside,
        parts=traffic_parts(job, plan, layers, costs, inside[Kind.F]),
        sent=step_traffic(job, plan, costs, schedule.stage_rank, graph, whole),
        slow=_slowest(plan, slow or {}),
    )


def _slowest(plan: Plan, slow: Mapping[int, float]) -> tuple[float, ...]:
    """The factor of the slowest device of each pipeline rank: all replicas wait for it."""
    if not slow:
        return (1.0,) * plan.pp
    held = members(plan, ("tp",)).reshape(plan.pp, -1)
    return tuple(
        max([1.0, *(factor for rank, factor in slow.items() if rank in ranks)])
        for ranks in (set(row) for row in held.tolist())
    )
