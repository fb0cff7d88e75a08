"""A plan's step as tier C runs it where replicas differ: a column for each class of them.

Each class has a schedule, prices and slow ranks of its own, as `ReadyStep` has for one plan. Groups
of equal nodes count as one kind here, so that their step is that of one kind to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from parsim.cluster.mixed import device_nodes, in_groups, level_devices, rank_kinds
from parsim.cluster.topology import Graph
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.schedule import Kind
from parsim.sim.fair_share import Array
from parsim.sim.inner import exchanges
from parsim.sim.mixed import MixedEvaluation, evaluate_mixed
from parsim.sim.mixed_costs import View, views_of
from parsim.sim.mixed_timeline import rank_label
from parsim.sim.mixed_traffic import circles, mixed_traffic
from parsim.sim.ready_step import ReadyStep, TrafficParts, traffic_parts
from parsim.sim.slots import Slots
from parsim.sim.step_traffic import Role, Sent, members, replica_of

_ASKED = "shared links (--contention, --beside, background, cluster.failed, jitter.slow_ranks)"
"""What asks for tier C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedReady:
    """One plan's step, a column for each class of replicas.

    `circles` is for each class the first of those with which it exchanges shards, `labels` say of
    each lane (column x pp + pipeline rank) which ranks it is.
    """

    plan: Plan
    columns: tuple[ReadyStep, ...]
    circles: tuple[int, ...]
    alone: float
    sent: Mapping[Role, Sent]
    labels: Mapping[str, str]


def mixed_ready(
    job: Job,
    plan: Plan,
    graph: Graph,
    whole: Graph | None = None,
    slow: Mapping[int, float] | None = None,
) -> MixedReady:
    """Price one plan and find its traffic.

    Args:
        job: model, cluster (mixed, or of one kind where batches are uneven), software.
        plan: a legal plan.
        graph: the links, with the job's ranks on their devices.
        whole: the links on which the closed forms hold, where `graph` is not it.
        slow: ranks whose compute takes so many times as long.

    Raises:
        PlanError: the plan is not legal.
        InputError: replicas of different classes exchange shards in every pass.
    """
    check_legal(job, plan)
    job = replace(job, cluster=in_groups(job.cluster))
    slots = Slots.on(rank_kinds(job.cluster, plan.node_order), plan)
    found = evaluate_mixed(job, plan, slots=slots, memory=False)
    _check_apart(plan, found)
    node_of = device_nodes(job.cluster)[level_devices(job.cluster, plan.node_order)]
    sent = mixed_traffic(job, plan, found, graph, whole or graph, node_of)
    columns = tuple(
        _Deciding(job, plan, found, column).ready(sent, _slow(plan, held, slow or {}))
        for column, held in enumerate(_held(found))
    )
    return MixedReady(
        plan=plan,
        columns=columns,
        circles=circles(found),
        alone=found.step_time,
        sent=sent,
        labels={
            str(c * plan.pp + rank): rank_label(job, found, c, rank)
            for c in range(len(columns))
            for rank in range(plan.pp)
        },
    )


def _held(found: MixedEvaluation) -> list[frozenset[int]]:
    """The replicas of each class."""
    of = found.replicas.class_of
    return [frozenset(np.flatnonzero(of == column).tolist()) for column in range(of.max() + 1)]


def _check_apart(plan: Plan, found: MixedEvaluation) -> None:
    if plan.ep > 1 and len(found.replicas.first) > 1:
        raise InputError(
            f"{_ASKED}: ep={plan.ep} has replicas that differ exchange tokens with one another's "
            f"experts, which tier C does not simulate; use ep=1, give all replicas equal nodes "
            f"and batches, or leave shared links out"
        )
    alone = len(found.replicas.first) == int(found.replicas.meets.sum())
    if found.slots.in_step and not alone:
        raise InputError(
            f"{_ASKED}: zero_stage={plan.zero_stage} with dp_shard={plan.dp_shard} has replicas on "
            f"nodes of different kinds exchange shards within every pass, which tier C does not "
            f"simulate; use zero_stage 0 or 1, let dp_shard span equal replicas only, or leave "
            f"shared links out"
        )


class _Deciding:
    """What of a class's actions is traffic: of each stage the kind that decides its price."""

    def __init__(self, job: Job, plan: Plan, found: MixedEvaluation, column: int) -> None:
        self.job, self.plan, self.found, self.column = job, plan, found, column
        self.known: dict[View, tuple[dict[Kind, Array], TrafficParts]] = {}
        slots, replica = found.slots, int(found.replicas.first[column])
        own = [views_of(slots, rank, replica) for rank in range(plan.pp)]
        every = [
            [view for one in range(slots.dp) for view in views_of(slots, rank, one)]
            for rank in range(plan.pp)
        ]
        self.ahead = self._slowest(own, "forward")
        self.behind = self._slowest(own, "backward")
        self.reducing = self._slowest(every, "bucket_time")

    def ready(self, sent: Mapping[Role, Sent], slow: tuple[float, ...]) -> ReadyStep:
        """The class as a plan of its own."""
        ahead, behind = self.ahead, self.behind
        views = {Kind.F: ahead, Kind.B: behind, Kind.I: behind, Kind.W: behind}
        return ReadyStep(
            plan=self.plan,
            schedule=self.found.graphs[self.column].schedule,
            costs=self.found.column(self.column),
            alone=self.found.step_time,
            inside={
                kind: _diagonal([self._of(view)[0][kind] for view in own])
                for kind, own in views.items()
            },
            parts=self._parts(),
            sent=sent,
            slow=slow,
        )

    def _parts(self) -> TrafficParts:
        """Of a reduction by who decides it; shares of exchanges by who decides the forward."""
        ahead, behind = ([self._of(view)[1] for view in own] for own in (self.ahead, self.behind))
        pairs = [(Kind.F, ahead), *((kind, behind) for kind in (Kind.B, Kind.I, Kind.W))]
        values = {
            field.name: _diagonal([getattr(one, field.name) for one in ahead])
            for field in fields(TrafficParts)
            if field.name not in ("shard", "layer", "scatter")
        }
        return TrafficParts(
            **values,
            shard={kind: _diagonal([one.shard[kind] for one in own]) for kind, own in pairs},
            layer={kind: _diagonal([one.layer[kind] for one in own]) for kind, own in pairs},
            scatter=_diagonal([self._of(view)[1].scatter for view in self.reducing]),
        )

    def _slowest(self, views: Sequence[Sequence[View]], price: str) -> list[View]:
        """The view of each stage whose price is the highest."""
        costs = self.found.pricing.costs
        rank_of = self.found.graphs[self.column].schedule.stage_rank
        return [
            max(views[rank], key=lambda view: float(getattr(costs(view), price)[stage, 0]))
            for stage, rank in enumerate(rank_of)
        ]

    def _of(self, view: View) -> tuple[dict[Kind, Array], TrafficParts]:
        """Exchanges and parts of all stages as if all nodes were of a view's kind."""
        if view not in self.known:
            pricing = self.found.pricing
            asked = pricing.viewed(view), self.plan, pricing.layers(view[0]), pricing.costs(view)
            inside = exchanges(*asked)
            self.known[view] = inside, traffic_parts(*asked, inside[Kind.F])
        return self.known[view]


def _diagonal(rows: Sequence[Array]) -> Array:
    """Of the values by stage that each stage's kind has, the stage's own, (S,)."""
    return np.array([float(row[stage]) for stage, row in enumerate(rows)])


def _slow(plan: Plan, replicas: frozenset[int], slow: Mapping[int, float]) -> tuple[float, ...]:
    """The factor of the slowest device of each pipeline rank of a class: its replicas wait."""
    if not slow:
        return (1.0,) * plan.pp
    replica = replica_of(plan)
    held = members(plan, ("tp",)).reshape(plan.pp, -1)
    return tuple(
        max([1.0, *(factor for rank, factor in slow.items()
                    if rank in ranks and int(replica[rank]) in replicas)])
        for ranks in (set(row) for row in held.tolist())
    )  # fmt: skip
