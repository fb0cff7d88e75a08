"""What a plan sends whose replicas differ: kinds of traffic for each class of replicas.

    tensor, context, messages   of each class by itself, over the links of its own nodes
    shards                      of all classes that exchange them with one another
    gradients                   of all replicas at once: a bucket waits for the slowest

Edges are those of the real ranks on the real nodes. How seconds divide into latency and bytes is
said by the slowest kind of node that takes part, as in its price; so a collective between kinds
leaves the faster node's interfaces as idle as the slower one's make them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.sim.collective_flows import LinkGraph
from parsim.sim.mixed import MixedEvaluation
from parsim.sim.mixed_costs import members
from parsim.sim.step_traffic import Indices, Role, Sent, TrafficMaker


def circles(found: MixedEvaluation) -> tuple[int, ...]:
    """For each class the first of those with which it exchanges shards."""
    return tuple(int(row.argmax()) for row in found.replicas.meets)


def mixed_traffic(
    job: Job,
    plan: Plan,
    found: MixedEvaluation,
    graph: LinkGraph,
    whole: LinkGraph,
    node_of: Indices,
) -> dict[Role, Sent]:
    """The kinds of traffic of one plan; columns of roles are classes of replicas.

    Args:
        job: on a cluster of groups.
        plan: a legal plan.
        found: its tier B.
        graph: the links, broken ones left out.
        whole: the graph with no link broken.
        node_of: the node of each rank.
    """
    made = _MixedMaker(job, plan, found, graph, whole, node_of)
    stage_rank, classes = found.graphs[0].schedule.stage_rank, range(len(found.graphs))
    sent: dict[Role, Sent] = {}
    for stage, rank in enumerate(stage_rank):
        for column in classes:
            sent |= made.inside(stage, rank, column)
        for column in sorted(set(circles(found))):
            sent |= made.shards(stage, rank, column)
        sent |= made.gradients(stage, rank)
    for stage in range(len(stage_rank) - 1):
        ends = stage_rank[stage], stage_rank[stage + 1]
        for column in classes if ends[0] != ends[1] else ():
            sent[Role("ahead", stage, column)] = made.message(stage, *ends, column)
            sent[Role("back", stage + 1, column)] = made.message(stage, ends[1], ends[0], column)
    return sent


class _MixedMaker:
    """Asks the maker of the slowest kind of node that takes part."""

    def __init__(
        self,
        job: Job,
        plan: Plan,
        found: MixedEvaluation,
        graph: LinkGraph,
        whole: LinkGraph,
        node_of: Indices,
    ) -> None:
        self.found, self.slots, self.circles = found, found.slots, circles(found)
        self.makers: dict[int, TrafficMaker] = {
            kind: TrafficMaker(
                job.on(job.cluster.systems[kind]),
                plan,
                found.pricing.costs((kind, 1 << kind, 1 << kind)),
                graph,
                whole,
                node_of,
            )
            for kind in members(found.slots.world)
        }

    def inside(self, stage: int, rank: int, column: int) -> Mapping[Role, Sent]:
        """Tensor- and context-parallel traffic of a class."""
        mine = self._replicas([column])
        maker = self._slowest(self._kinds([rank], mine), "forward", stage)
        return _in_column(maker.inside(stage, rank, mine), column)

    def shards(self, stage: int, rank: int, circle: int) -> Mapping[Role, Sent]:
        """Gathers of shards of the classes that meet."""
        meeting = [column for column, own in enumerate(self.circles) if own == circle]
        mine = self._replicas(meeting)
        maker = self._slowest(self._kinds([rank], mine), "gather", rank)
        return _in_column(maker.shards(stage, rank, mine), circle)

    def gradients(self, stage: int, rank: int) -> Mapping[Role, Sent]:
        """Reductions over all replicas."""
        everyone = self._replicas(range(len(self.circles)))
        maker = self._slowest(self._kinds([rank], everyone), "bucket_time", stage)
        return dict(maker.gradients(stage, rank))

    def message(self, stage: int, source: int, target: int, column: int) -> Sent:
        """Messages between two pipeline ranks of a class."""
        mine = self._replicas([column])
        maker = self._slowest(self._kinds([source, target], mine), "hop", stage)
        return maker.message(stage, source, target, mine)

    def _replicas(self, columns: Iterable[int]) -> frozenset[int]:
        held = np.isin(self.found.replicas.class_of, list(columns))
        return frozenset(np.flatnonzero(held).tolist())

    def _kinds(self, ranks: Iterable[int], replicas: frozenset[int]) -> list[int]:
        held = self.slots.kinds[np.ix_(list(ranks), sorted(replicas))]
        return members(int(np.bitwise_or.reduce(held, axis=None)))

    def _slowest(self, kinds: Iterable[int], price: str, place: int) -> TrafficMaker:
        return max(
            (self.makers[kind] for kind in kinds),
            key=lambda maker: float(getattr(maker.costs, price)[place, 0]),
        )


def _in_column(made: Iterable[tuple[Role, Sent]], column: int) -> dict[Role, Sent]:
    return {role._replace(column=column): sent for role, sent in made}
