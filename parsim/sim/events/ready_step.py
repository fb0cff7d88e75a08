"""A plan's step as tier C runs it on shared links: its classes, and what of them is traffic.

Groups of equal nodes count as one kind here, so that their step is that of one kind to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Index, ratio
from parsim.cluster.groups import device_nodes, in_groups, level_devices
from parsim.cluster.topology import Graph
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import StepCosts, stage_cut
from parsim.errors import InputError
from parsim.plan import Plan, PlanTable
from parsim.schedule import Kind
from parsim.sim.events.class_run import (
    ClassRun,
    RunnableStep,
    TrafficParts,
    check_shards_apart,
    runnable,
)
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.exchanges import exchanges
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.step.pricing import View, views_of
from parsim.sim.step.schedule_costs import action_seconds
from parsim.sim.traffic.class_traffic import class_traffic
from parsim.sim.traffic.mesh_groups import group_ranks, replica_of
from parsim.sim.traffic.step_traffic import Role, Sent

_ASKED = "shared links (--contention, --beside, background, cluster.failed, jitter.slow_ranks)"
"""What asks for tier C."""
_BACKWARD = (Kind.B, Kind.I, Kind.W)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyStep:
    """One plan's step for shared links: `alone` is tier B's step time, `sent` all its traffic."""

    step: PricedStep
    run: RunnableStep
    alone: float
    sent: Mapping[Role, Sent]

    @property
    def plan(self) -> Plan:
        """What is run."""
        return self.step.plan


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
        InputError: replicas of different classes exchange shards in every pass.
    """
    check_legal(job, plan)
    evaluation = evaluate(job, plan, by_kind=True, memory=False)
    step = evaluation.step
    _check_apart(step)
    runs = tuple(
        ClassRun.of(
            step.schedule(number),
            step.column(number),
            _slow(step, number, slow or {}),
            _DecidingKinds(step, number).parts(),
        )
        for number in range(step.num_classes)
    )
    return ReadyStep(
        step=step,
        run=runnable(step, runs),
        alone=evaluation.step_time,
        sent=class_traffic(step, graph, whole or graph, _node_of(job, plan)),
    )


def _node_of(job: Job, plan: Plan) -> Index | None:
    """The node of each rank, where replicas may differ."""
    if not job.mixed and plan.replica_microbatches is None:
        return None
    cluster = in_groups(job.cluster)
    return device_nodes(cluster)[level_devices(cluster, plan.node_order)]


def _check_apart(step: PricedStep) -> None:
    plan = step.plan
    if step.schedule(0).copies > 1:
        raise InputError(
            f"{_ASKED}: schedule={plan.schedule} has two copies of the model, whose exchange is "
            f"not simulated on links that others share; use another schedule, or leave shared "
            f"links out"
        )
    if plan.ep > 1 and step.num_classes > 1:
        raise InputError(
            f"{_ASKED}: ep={plan.ep} has replicas that differ exchange tokens with one another's "
            f"experts, which tier C does not simulate; use ep=1, give all replicas equal nodes "
            f"and batches, or leave shared links out"
        )
    check_shards_apart(step, _ASKED, "shared links")


def traffic_parts(job: Job, plan: Plan, layers: LayerTable, costs: StepCosts) -> TrafficParts:
    """What of a stage's time is traffic, as the closed forms see it."""
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, stage_cut(job, table))
    inside = exchanges(job, plan, layers, costs)
    pieces = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    inner = np.ones(len(pieces)), 1.0 / pieces[:, 0]
    ahead, behind = inner[plan.overlap_param_gather], inner[plan.overlap_grad_reduce]
    return TrafficParts(
        inside=inside,
        shard=_shards(job, plan, costs, pieces),
        layer={Kind.F: ahead, **dict.fromkeys(_BACKWARD, behind)},
        scatter=_scattered(job, plan, costs),
        **_inner_shares(plan, layers, counts, inside[Kind.F]),
    )


def _shards(job: Job, plan: Plan, costs: StepCosts, pieces: Array) -> dict[Kind, Array]:
    """Idle seconds of gathers and scatters beside each kind of action."""
    data = DataParallel.of(job, PlanTable.of([plan]))
    whole, sent = (
        each.by(lambda stages: stages / pieces) for each in (costs.weights, costs.updated)
    )
    gather = (pieces * data.gather(*whole))[:, 0] * (plan.zero_stage == 3)
    scatter = (pieces * data.scatter(*sent))[:, 0] * (plan.zero_stage >= 2)
    inputs = np.minimum(gather, action_seconds(costs)[Kind.I][:, 0])
    return {
        Kind.F: gather,
        Kind.B: gather + scatter,
        Kind.I: inputs,
        Kind.W: gather - inputs + scatter,
    }


def _scattered(job: Job, plan: Plan, costs: StepCosts) -> Array:
    """The share of a gradient bucket's time that its sum over shards takes."""
    data = DataParallel.of(job, PlanTable.of([plan]))
    bucket = costs.updated.by(lambda stages: stages / costs.buckets)
    seconds = data.sums_once(*bucket)[:, 0] * (plan.zero_stage == 1)
    return np.minimum(ratio(seconds, costs.bucket_time[:, 0]), 1.0)


def _inner_shares(
    plan: Plan, layers: LayerTable, counts: Array, exposed: Array
) -> dict[str, Array]:
    """Shares of a forward's exposed exchanges, between context ranks and between experts' ranks."""
    core = counts @ np.stack([kind.core.exposed[0] for kind in layers.kinds])
    tokens = counts @ np.stack([kind.routed.exposed[0] for kind in layers.kinds])
    several = plan.tp > 1 or plan.ep > 1
    return {
        "context": ratio(core, exposed) if several else np.full(len(core), float(plan.cp > 1)),
        "routed": ratio(tokens, exposed) if plan.ep > 1 else np.zeros(len(core)),
    }


class _DecidingKinds:
    """What of a class's actions is traffic: of each stage, by the kind that decides its price."""

    def __init__(self, step: PricedStep, number: int) -> None:
        self.step, self.number = step, number
        self.known: dict[View, TrafficParts] = {}

    def parts(self) -> TrafficParts:
        """Reductions by who decides them; shares of exchanges by who decides the forward."""
        step, devices = self.step, self.step.devices
        replica = int(step.classes.first[self.number])
        alone = [views_of(devices, rank, replica) for rank in range(devices.pp)]
        every = [
            [view for other in range(devices.dp) for view in views_of(devices, rank, other)]
            for rank in range(devices.pp)
        ]
        ahead, behind = self._slowest(alone, "forward"), self._slowest(alone, "backward")
        reducing = self._slowest(every, "bucket_time")
        kinds = [(Kind.F, ahead), *((kind, behind) for kind in _BACKWARD)]
        return TrafficParts(
            inside={kind: _diagonal([p.inside[kind] for p in parts]) for kind, parts in kinds},
            shard={kind: _diagonal([p.shard[kind] for p in parts]) for kind, parts in kinds},
            layer={kind: _diagonal([p.layer[kind] for p in parts]) for kind, parts in kinds},
            context=_diagonal([parts.context for parts in ahead]),
            routed=_diagonal([parts.routed for parts in ahead]),
            scatter=_diagonal([parts.scatter for parts in reducing]),
        )

    def _slowest(self, views: Sequence[Sequence[View]], price: str) -> list[TrafficParts]:
        """Parts of the kind of node whose price of each stage is the highest."""
        costs = self.step.pricing.costs
        return [
            self._of(
                max(
                    dict.fromkeys(views[rank]),
                    key=lambda view: float(getattr(costs(view), price)[stage, 0]),
                )
            )
            for stage, rank in enumerate(self.step.schedule(self.number).stage_rank)
        ]

    def _of(self, view: View) -> TrafficParts:
        """Parts of all stages as if all nodes were of a view's kind."""
        if view not in self.known:
            pricing = self.step.pricing
            self.known[view] = traffic_parts(
                pricing.viewed(view), self.step.plan, pricing.layers(view[0]), pricing.costs(view)
            )
        return self.known[view]


def _diagonal(rows: Sequence[Array]) -> Array:
    """Each stage's value from the row of the kind that decides it, (S,)."""
    return np.array([float(row[stage]) for stage, row in enumerate(rows)])


def _slow(step: PricedStep, number: int, slow: Mapping[int, float]) -> tuple[float, ...]:
    """The factor of the slowest device of each pipeline rank of a class: its replicas wait."""
    plan = step.plan
    if not slow:
        return (1.0,) * plan.pp
    replica, class_of = replica_of(plan), step.classes.class_of
    rows = group_ranks(plan, ("tp",)).reshape(plan.pp, -1).tolist()
    return tuple(
        max([
            1.0,
            *(slow[rank] for rank in ranks if rank in slow and class_of[replica[rank]] == number),
        ])
        for ranks in rows
    )  # fmt: skip
