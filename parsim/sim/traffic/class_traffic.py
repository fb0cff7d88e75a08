"""What a plan sends: kinds of traffic for each class of replicas.

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

from parsim.arrays import Index
from parsim.sim.links.collective_flows import LinkGraph
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.step.pricing import groups_in
from parsim.sim.traffic.step_traffic import Chosen, Role, Sent, TrafficMaker


def class_traffic(
    step: PricedStep, graph: LinkGraph, whole: LinkGraph, node_of: Index | None
) -> dict[Role, Sent]:
    """The kinds of traffic of one plan; columns of roles are classes of replicas.

    Args:
        step: the plan, priced.
        graph: the links, broken ones left out.
        whole: the graph with no link broken.
        node_of: the node of each rank, where nodes differ.
    """
    makers = _ByClass(step, graph, whole, node_of)
    stage_rank, classes = step.schedule(0).stage_rank, range(step.num_classes)
    sent: dict[Role, Sent] = {}
    for stage, rank in enumerate(stage_rank):
        for column in classes:
            sent |= makers.inside(stage, rank, column)
        for column in sorted(set(makers.circles)):
            sent |= makers.shards(stage, rank, column)
        sent |= makers.gradients(stage, rank)
    for stage in range(len(stage_rank) - 1):
        ends = stage_rank[stage], stage_rank[stage + 1]
        for column in classes if ends[0] != ends[1] else ():
            sent[Role("ahead", stage, column)] = makers.message(stage, *ends, column)
            sent[Role("back", stage + 1, column)] = makers.message(stage, ends[1], ends[0], column)
    return sent


class _ByClass:
    """Asks the maker of the slowest kind of node that takes part."""

    def __init__(
        self, step: PricedStep, graph: LinkGraph, whole: LinkGraph, node_of: Index | None
    ) -> None:
        self.devices, self.class_of = step.devices, step.classes.class_of
        self.circles = tuple(int(row.argmax()) for row in step.classes.sharers)
        self.makers: dict[int, TrafficMaker] = {
            kind: TrafficMaker(
                step.job_on(kind),
                step.plan,
                step.pricing.costs((kind, 1 << kind, 1 << kind)),
                graph,
                whole,
                node_of,
            )
            for kind in groups_in(step.devices.world)
        }

    def inside(self, stage: int, rank: int, column: int) -> Mapping[Role, Sent]:
        """Tensor- and context-parallel traffic of a class."""
        replicas = self._replicas([column])
        maker = self._slowest(self._kinds([rank], replicas), "forward", stage)
        return _in_column(maker.inside(stage, rank, self._chosen(replicas)), column)

    def shards(self, stage: int, rank: int, circle: int) -> Mapping[Role, Sent]:
        """Gathers of shards of the classes that share parameters."""
        replicas = self._replicas([c for c, first in enumerate(self.circles) if first == circle])
        maker = self._slowest(self._kinds([rank], replicas), "gather", rank)
        return _in_column(maker.shards(stage, rank, self._chosen(replicas)), circle)

    def gradients(self, stage: int, rank: int) -> Mapping[Role, Sent]:
        """Reductions over all replicas."""
        everyone = self._replicas(range(len(self.circles)))
        maker = self._slowest(self._kinds([rank], everyone), "bucket_time", stage)
        return dict(maker.gradients(stage, rank))

    def message(self, stage: int, source: int, target: int, column: int) -> Sent:
        """Messages between two pipeline ranks of a class."""
        replicas = self._replicas([column])
        maker = self._slowest(self._kinds([source, target], replicas), "hop", stage)
        return maker.message(stage, source, target, self._chosen(replicas))

    def _replicas(self, columns: Iterable[int]) -> frozenset[int]:
        chosen = np.isin(self.class_of, list(columns))
        return frozenset(np.flatnonzero(chosen).tolist())

    def _chosen(self, replicas: frozenset[int]) -> Chosen:
        """The replicas, or None where they are all."""
        return None if len(replicas) == self.devices.dp else replicas

    def _kinds(self, ranks: Iterable[int], replicas: frozenset[int]) -> list[int]:
        groups = self.devices.groups[np.ix_(list(ranks), sorted(replicas))]
        return groups_in(int(np.bitwise_or.reduce(groups, axis=None)))

    def _slowest(self, kinds: Iterable[int], price: str, row: int) -> TrafficMaker:
        return max(
            (self.makers[kind] for kind in kinds),
            key=lambda maker: float(getattr(maker.costs, price)[row, 0]),
        )


def _in_column(traffic: Iterable[tuple[Role, Sent]], column: int) -> dict[Role, Sent]:
    return {role._replace(column=column): sent for role, sent in traffic}
