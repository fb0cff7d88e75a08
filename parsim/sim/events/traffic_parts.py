"""What of a class's actions is traffic: by closed forms, and by the kind of node that decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.arrays import Array, ratio
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.plan import Plan, PlanTable
from parsim.schedule import Kind
from parsim.sim.events.class_run import (
    TrafficParts,
)
from parsim.sim.step.exchanges import exchanges
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.step.pricing import View, views_of
from parsim.sim.step.schedule_costs import action_seconds

_BACKWARD = (Kind.B, Kind.I, Kind.W)


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
    scatter = (pieces * data.scatter(*sent) * data.scattering)[:, 0] * (plan.zero_stage >= 2)
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


class DecidingKinds:
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
