"""What a plan sends: for each pipeline rank and axis one kind of traffic over the links.

All groups of an axis on one pipeline rank do the same at the same time (replicas and their members
are alike), so their collectives are one flow, whose usage of a link counts the edges of all of
them. So a step has some 10 kinds a pipeline rank, whatever the number of devices.

Times are tier B's: a kind's `latency_share` and `limit` say how its idle seconds divide into
latency and bytes, by the closed form of one typical collective. One group alone takes those
seconds on the whole network, as in `collective_flows`; all of them at once may take more, where
they meet on links that the closed form does not know (spines, PCIe).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parsim.arrays import Index
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.collective.message import Message
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.messages import gradient_messages, hop_bytes, layer_messages, shard_messages
from parsim.cost.step.stages import stage_borders
from parsim.cost.step.step import stage_cut
from parsim.plan import Plan, PlanTable
from parsim.sim.links.collective_flows import (
    Edge,
    LinkGraph,
    algorithm_of,
    by_node,
    on_nodes,
    pattern,
    rate_of,
    slowest,
    usage_of,
)
from parsim.sim.traffic.mesh_groups import group_ranks, replica_of, watched_nodes

Chosen = frozenset[int] | None
"""Replicas whose traffic is asked for; None: all of them."""


class Role(NamedTuple):
    """What traffic is for: `tp`, `cp`, `ep`, `shard`, `scatter`, `replicate`, `ahead` or `back`.

    `number` is the stage that it belongs to; of messages the one that sends them. `column` is the
    class of replicas whose it is, where they differ (`class_traffic`).
    """

    name: str
    number: int
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One kind of traffic: its links, what it takes of them, and how idle seconds divide."""

    usage: dict[int, float]
    limit: float
    latency_share: float


class TrafficMaker:
    """Makes the kinds of one plan; edges and their links are found once per rank and axis."""

    def __init__(
        self,
        job: Job,
        plan: Plan,
        costs: StepCosts,
        graph: LinkGraph,
        whole: LinkGraph,
        node_of: Index | None = None,
    ) -> None:
        """A maker; `node_of` is the node of each rank where nodes differ, (world,)."""
        self.node_of = node_of
        self.job, self.plan, self.costs = job, plan, costs
        self.graph, self.whole = graph, whole
        self.table = PlanTable.of([plan])
        self.data = DataParallel.of(job, self.table)
        self.watched = watched_nodes(job, plan) if graph is whole and node_of is None else None
        self.known: dict[object, tuple[dict[int, float], float, float]] = {}

    def inside(self, stage: int, rank: int, chosen: Chosen = None) -> Iterator[tuple[Role, Sent]]:
        """Collectives of a stage's layers (tensor, context, expert), of the chosen replicas."""
        for message in layer_messages(self.job, self.table):
            yield Role(message.axis, stage), self._collective(message, rank, chosen)

    def shards(self, stage: int, rank: int, chosen: Chosen = None) -> Iterator[tuple[Role, Sent]]:
        """Gathers of a stage's parameters by those that share them, of the chosen replicas."""
        for message in shard_messages(self.job, self.data, self.costs.parameters[stage]):
            yield Role("shard", stage), self._collective(message, rank, chosen)

    def gradients(self, stage: int, rank: int) -> Iterator[tuple[Role, Sent]]:
        """Reductions of a bucket of a stage's gradients, of all replicas."""
        bucket = self.costs.trained[stage] / self.costs.buckets[stage]
        for message in gradient_messages(self.data, bucket):
            name = "scatter" if message.axis == "shard" else message.axis
            yield Role(name, stage), self._collective(message, rank)

    def message(self, stage: int, source: int, target: int, chosen: Chosen = None) -> Sent:
        """All messages from one pipeline rank to another; scattered, each rank sends 1/tp.

        `stage` is the one before the border, whose hop in `costs` they take.
        """
        pairs = self._members(("pp",), 0, chosen)
        edges = [(int(row[source]), int(row[target]), 1.0) for row in pairs]
        used, peak, _ = self._links(
            (source, target, chosen), lambda: ([[edge] for edge in edges], 1.0)
        )
        seconds = float(self.costs.hop[stage, 0])
        crosses = any(len(self._by_node(edge[:2])) > 1 for edge in edges)
        least = float(p2p_time(self.job.system, 1.0, crosses=crosses, sharing=1.0))
        borders = stage_borders(self.job.model, stage_cut(self.job, self.table))
        size = float(hop_bytes(self.table, borders[stage])[0])
        return sent_alone(used, peak, size, seconds, least)

    @property
    def _per_node(self) -> int:
        return self.job.system.devices_per_node

    def _by_node(self, ranks: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Ranks of a group node by node."""
        if self.node_of is None:
            return by_node(ranks, self._per_node)
        return on_nodes(ranks, self.node_of[list(ranks)].tolist())

    def _members(self, axes: Sequence[str], rank: int, chosen: Chosen) -> list[list[int]]:
        """The groups of some axes on a pipeline rank, those of the chosen replicas."""
        groups: list[list[int]] = group_ranks(self.plan, axes)[rank].tolist()
        if chosen is None:
            return groups
        replica = replica_of(self.plan)
        return [group for group in groups if int(replica[group[0]]) in chosen]

    def _collective(self, message: Message, rank: int, chosen: Chosen = None) -> Sent:
        system, kind, axes = self.job.system, message.kind, self._axes(message.axis)
        seconds = float(message.seconds(system)[0])
        least = float(message.waiting(system)[0])
        algorithm = algorithm_of(system, kind, message.where)

        def edges() -> tuple[list[Sequence[Edge]], float]:
            patterns = [
                pattern(kind, algorithm, self._by_node(group))
                for group in self._members(axes, rank, chosen)
            ]
            return [each.edges for each in patterns], patterns[0].share

        used, peak, share = self._links((kind, algorithm, rank, axes, chosen), edges)
        return sent_alone(used, peak, share * float(message.size[0]), seconds, least)

    def _axes(self, name: str) -> tuple[str, ...]:
        """Axes of the mesh whose ranks make up the groups that a message names."""
        outer = ("dp_replicate",) if self.plan.zero_stage > 0 else ("dp_replicate", "cp")
        return {"shard": ("dp_shard", "cp"), "replicate": outer}.get(name, (name,))

    def _links(
        self, key: object, edges: Callable[[], tuple[Sequence[Sequence[Edge]], float]]
    ) -> tuple[dict[int, float], float, float]:
        """Usage of each link by all groups, seconds a byte of the group that is worst placed.

        The latter on the graph with no link broken.
        """
        if key not in self.known:
            groups, share = edges()
            if self.watched is not None:
                groups = [[edge for edge in group if self._is_watched(edge)] for group in groups]
            used: dict[int, float] = {}
            peak = 0.0
            for group in groups:
                alone = usage_of(self.graph, group)
                intact = alone if self.whole is self.graph else usage_of(self.whole, group)
                peak = max(peak, slowest(self.whole, intact))
                for link, units in alone.items():
                    used[link] = used.get(link, 0.0) + units
            self.known[key] = used, peak, share
        return self.known[key]

    def _is_watched(self, edge: Edge) -> bool:
        nodes = edge[0] // self._per_node, edge[1] // self._per_node
        return self.watched is None or not self.watched.isdisjoint(nodes)


def sent_alone(
    used: dict[int, float], peak: float, size: float, seconds: float, least: float
) -> Sent:
    """Traffic that takes its seconds, `least` of them latency, where nothing else is under way.

    Args:
        used: units on each link.
        peak: seconds that a byte of each unit takes on the link that it fills first.
        size: bytes of a unit.
        seconds: of all of it.
        least: those of them that are latency.
    """
    latency, limit = rate_of(seconds, least, size)
    scale = 1.0 / max(1.0, limit * peak)
    return Sent(
        usage={link: scale * units for link, units in used.items()},
        limit=limit,
        latency_share=latency / seconds,
    )
