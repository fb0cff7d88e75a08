"""Who runs what in a Monte Carlo of steps: replicas by their schedules and their prices.

    equal nodes and batches      one part, one class: one column of prices for all replicas
    nodes of two kinds           one part, two classes: a column for each replica
    uneven batches               a part for each number of micro-batches, with actions of its own

Groups of equal nodes count as one kind, so that their steps are those of one kind to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.mixed import in_groups, rank_kinds
from parsim.cost.job import Job
from parsim.cost.step import StepCosts
from parsim.plan import Plan, PlanTable
from parsim.sim.evaluate import evaluate
from parsim.sim.graph import Graph, Index
from parsim.sim.mixed import evaluate_mixed
from parsim.sim.simulate import differ, plan_shape
from parsim.sim.slots import Flags, Slots

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Replicas that run the same actions.

    `replicas` (n,) are which of the plan's they are, `class_of` (n,) the class of each. `costs`
    have a column for each of them, or one where they are of one class.
    """

    graph: Graph
    costs: StepCosts
    replicas: Index
    class_of: Index

    def members(self, number: int) -> Index:
        """Places of a class among the replicas."""
        return np.flatnonzero(self.class_of == number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """All replicas of a plan; `meets` (C, C) says which classes share parameters."""

    parts: tuple[Part, ...]
    meets: Flags

    @classmethod
    def alike(cls, graph: Graph, costs: StepCosts, replicas: int) -> Pipelines:
        """So many replicas with equal actions and prices (of one plan)."""
        part = Part(
            graph=graph,
            costs=costs,
            replicas=np.arange(replicas),
            class_of=np.zeros(replicas, dtype=np.int64),
        )
        return cls(parts=(part,), meets=np.ones((1, 1), dtype=bool))

    @property
    def costs(self) -> StepCosts:
        """What all replicas do at once is priced alike in every part."""
        return self.parts[0].costs


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPlan:
    """A plan's replicas, and their step without jitter and straggler allowance, seconds."""

    pipelines: Pipelines
    updated: float
    straggler: float


def priced_plan(job: Job, plan: Plan) -> PricedPlan:
    """Price a plan on a cluster of one kind of node or of several."""
    if differ(job, plan):
        return _unlike(replace(job, cluster=in_groups(job.cluster)), plan)
    found = evaluate(job, PlanTable.of([plan]), plan_shape(plan))
    return PricedPlan(
        pipelines=Pipelines.alike(found.graph, found.costs, plan.dp),
        updated=float(found.tail.updated[0]),
        straggler=float(found.costs.straggler[0]),
    )


def _unlike(job: Job, plan: Plan) -> PricedPlan:
    slots = Slots.on(rank_kinds(job.cluster, plan.node_order), plan)
    found = evaluate_mixed(job, plan, slots=slots, memory=False)
    class_of = found.replicas.class_of
    return PricedPlan(
        pipelines=Pipelines(
            parts=tuple(_parts(found.graphs, found.costs, class_of)), meets=found.replicas.meets
        ),
        updated=float(found.tail.updated[0]),
        straggler=float(found.costs.straggler[0]),
    )


def _parts(graphs: Sequence[Graph], costs: StepCosts, class_of: Index) -> list[Part]:
    """Replicas by the graph of their class, in the order of the first classes."""
    parts = []
    for one in dict.fromkeys(map(id, graphs)):
        mine = [number for number, graph in enumerate(graphs) if id(graph) == one]
        replicas = np.flatnonzero(np.isin(class_of, mine))
        columns = class_of[replicas] if len(mine) > 1 else np.array(mine)
        parts.append(
            Part(
                graph=graphs[mine[0]],
                costs=costs.rows(columns),
                replicas=replicas,
                class_of=class_of[replicas],
            )
        )
    return parts
