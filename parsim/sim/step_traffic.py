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

import numpy as np
from numpy.typing import NDArray

from parsim.cost.collectives import Groups, Kind, collective_time, groups, p2p_time
from parsim.cost.experts import expert_groups
from parsim.cost.job import Job
from parsim.cost.quantized import gathered_size
from parsim.cost.sharding import DataParallel, reduced_bytes
from parsim.cost.step import StepCosts
from parsim.plan import Plan, PlanTable
from parsim.plan.record import AXES
from parsim.sim.collective_flows import (
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

Indices = NDArray[np.int64]
Chosen = frozenset[int] | None
"""Replicas whose traffic is asked for; all of them."""

_SHARDS = ("dp_shard", "cp")
"""Axes of the groups that share parameters."""

FOLDED_FROM = 2048
"""Ranks above which two leaf groups of each pipeline rank stand for the others."""


class Role(NamedTuple):
    """What traffic is for: `tp`, `cp`, `ep`, `shard`, `scatter`, `replicate`, `ahead` or `back`.

    `place` is the stage that it belongs to; of messages the one that sends them. `column` is the
    class of replicas whose it is, where they differ (`mixed_traffic`).
    """

    name: str
    place: int
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One kind of traffic: its links, what it takes of them, and how idle seconds divide."""

    usage: dict[int, float]
    limit: float
    latency_share: float


def step_traffic(
    job: Job,
    plan: Plan,
    costs: StepCosts,
    stage_rank: Sequence[int],
    graph: LinkGraph,
    whole: LinkGraph | None = None,
) -> dict[Role, Sent]:
    """The kinds of traffic of one plan.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        costs: its prices, of one plan (B = 1).
        stage_rank: pipeline rank of each stage.
        graph: the links, broken ones left out.
        whole: the graph with no link broken, where `graph` is not it.
    """
    maker = TrafficMaker(job, plan, costs, graph, whole or graph)
    found: dict[Role, Sent] = {}
    for stage, rank in enumerate(stage_rank):
        for role, sent in maker.of_stage(stage, rank):
            found[role] = sent
    for stage in range(len(stage_rank) - 1):
        if stage_rank[stage] != stage_rank[stage + 1]:
            ends = stage_rank[stage], stage_rank[stage + 1]
            found[Role("ahead", stage)] = maker.message(stage, *ends)
            found[Role("back", stage + 1)] = maker.message(stage, ends[1], ends[0])
    return found


class TrafficMaker:
    """Makes the kinds of one plan; edges and their links are found once per rank and axis."""

    def __init__(
        self,
        job: Job,
        plan: Plan,
        costs: StepCosts,
        graph: LinkGraph,
        whole: LinkGraph,
        node_of: Indices | None = None,
    ) -> None:
        """A maker; `node_of` is the node of each rank where nodes differ, (world,)."""
        self.node_of = node_of
        self.job, self.plan, self.costs = job, plan, costs
        self.graph, self.whole = graph, whole
        self.table = PlanTable.of([plan])
        self.data = DataParallel.of(job, self.table)
        self.watched = watched_nodes(job, plan) if graph is whole and node_of is None else None
        self.known: dict[object, tuple[dict[int, float], float, float]] = {}

    def of_stage(self, stage: int, rank: int) -> Iterator[tuple[Role, Sent]]:
        """The collectives of one stage, those that the plan has."""
        yield from self.inside(stage, rank)
        yield from self.shards(stage, rank)
        yield from self.gradients(stage, rank)

    def inside(self, stage: int, rank: int, chosen: Chosen = None) -> Iterator[tuple[Role, Sent]]:
        """Those of a stage's tensor- and context-parallel groups, of the chosen replicas."""
        plan = self.plan
        activation = plan.microbatch_size * self.job.model.seq_len / plan.cp
        activation *= self.job.model.hidden_size * self.table.precision.activation
        if plan.tp > 1:
            kind: Kind = "all_gather" if plan.sequence_parallel else "all_reduce"
            where = self._groups(plan.tp, plan.stride("tp"))
            made = self._collective(kind, activation, where, rank, ("tp",), chosen)
            yield Role("tp", stage), made
        if plan.cp > 1:
            where = self._groups(plan.cp, plan.stride("cp"))
            blocks = 2.0 * activation * plan.cp / plan.tp
            made = self._collective("all_gather", blocks, where, rank, ("cp",), chosen)
            yield Role("cp", stage), made
        experts = self.job.model.experts
        if experts is not None and plan.ep > 1:
            where, _ = expert_groups(self.job, self.table)
            copies = activation * experts.top_k / plan.tp
            made = self._collective("all_to_all", copies, where, rank, ("ep",), chosen)
            yield Role("ep", stage), made

    def shards(self, stage: int, rank: int, chosen: Chosen = None) -> Iterator[tuple[Role, Sent]]:
        """Gathers of a stage's parameters by those that share them, of the chosen replicas."""
        if self._sharded:
            layers = max(self.job.model.num_layers / self.plan.num_stages, 1.0)
            here = float(self.costs.parameters[stage, 0])
            size = here / layers * gathered_size(self.job, self.table.precision)
            where = self.data.shard
            made = self._collective("all_gather", size, where, rank, _SHARDS, chosen)
            yield Role("shard", stage), made

    def gradients(self, stage: int, rank: int) -> Iterator[tuple[Role, Sent]]:
        """Reductions of a bucket of a stage's gradients, of all replicas."""
        plan, table = self.plan, self.table
        here = float(self.costs.parameters[stage, 0])
        reduced = here / float(self.costs.buckets[stage, 0]) * reduced_bytes(table)
        if self._sharded:
            made = self._collective("reduce_scatter", reduced, self.data.shard, rank, _SHARDS)
            yield Role("scatter", stage), made
        if float(self.data.replicate.size[0]) > 1:
            outer = ("dp_replicate",) if plan.zero_stage > 0 else ("dp_replicate", "cp")
            size = reduced / float(self.data.shards[0])
            made = self._collective("all_reduce", size, self.data.replicate, rank, outer)
            yield Role("replicate", stage), made

    @property
    def _sharded(self) -> bool:
        """Whether several ranks share parameters, gradients or optimizer states."""
        return self.plan.zero_stage > 0 and self.plan.dp_shard * self.plan.cp > 1

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
        size = self.plan.microbatch_size * self.job.model.seq_len / self.plan.cp
        size *= self.job.model.hidden_size * self.table.precision.activation
        if self.plan.scatter_p2p or self.plan.sequence_parallel:
            size /= self.plan.tp
        return _sent(used, peak, size, seconds, least)

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
        found: list[list[int]] = members(self.plan, axes)[rank].tolist()
        if chosen is None:
            return found
        replica = replica_of(self.plan)
        return [group for group in found if int(replica[group[0]]) in chosen]

    def _groups(self, size: int, stride: int) -> Groups:
        columns = (np.array([value]) for value in (size, stride, self.plan.world_size))
        size_, stride_, world = columns
        return groups(self.job.system, size=size_, stride=stride_, world=world)

    def _collective(
        self,
        kind: Kind,
        size: float,
        where: Groups,
        rank: int,
        axes: tuple[str, ...],
        chosen: Chosen = None,
    ) -> Sent:
        system = self.job.system
        seconds = float(collective_time(system, kind, size, where)[0])
        least = float(collective_time(system, kind, 1.0, where)[0])
        algorithm = algorithm_of(system, kind, where)

        def edges() -> tuple[list[Sequence[Edge]], float]:
            made = [
                pattern(kind, algorithm, self._by_node(group))
                for group in self._members(axes, rank, chosen)
            ]
            return [one.edges for one in made], made[0].share

        used, peak, share = self._links((kind, algorithm, rank, axes, chosen), edges)
        return _sent(used, peak, share * size, seconds, least)

    def _links(
        self, key: object, edges: Callable[[], tuple[Sequence[Sequence[Edge]], float]]
    ) -> tuple[dict[int, float], float, float]:
        """Usage of each link by all groups, seconds a byte of the group that is worst placed.

        The latter on the graph with no link broken.
        """
        if key not in self.known:
            made, share = edges()
            if self.watched is not None:
                made = [[edge for edge in one if self._is_watched(edge)] for one in made]
            used: dict[int, float] = {}
            peak = 0.0
            for one in made:
                alone = usage_of(self.graph, one)
                intact = alone if self.whole is self.graph else usage_of(self.whole, one)
                peak = max(peak, slowest(self.whole, intact))
                for link, units in alone.items():
                    used[link] = used.get(link, 0.0) + units
            self.known[key] = used, peak, share
        return self.known[key]

    def _is_watched(self, edge: Edge) -> bool:
        nodes = edge[0] // self._per_node, edge[1] // self._per_node
        return self.watched is None or not self.watched.isdisjoint(nodes)


def _sent(used: dict[int, float], peak: float, size: float, seconds: float, least: float) -> Sent:
    latency, limit = rate_of(seconds, least, size)
    scale = 1.0 / max(1.0, limit * peak)
    return Sent(
        usage={link: scale * units for link, units in used.items()},
        limit=limit,
        latency_share=latency / seconds,
    )


def watched_nodes(job: Job, plan: Plan) -> frozenset[int] | None:
    """Nodes whose links stand for all others in a large tree of switches; None: no node does.

    The leaf groups where each pipeline rank begins and ends, with all edges that start or end
    there: leaf groups within one pipeline rank are alike, so that links of the others carry no
    more.

    Leaves out: with an order of ranks that interleaves pipeline ranks, what lies between.
    """
    system, placement = job.system, job.cluster.placement
    network = system.network
    if plan.world_size <= FOLDED_FROM or placement is not None or network is None:
        return None
    if network.fabric not in ("fat-tree", "rail-optimised"):
        return None
    wide = network.nodes_per_leaf
    held = members(plan, ("tp",)).reshape(plan.pp, -1) // system.devices_per_node // wide
    leaves = {*held.min(axis=1).tolist(), *held.max(axis=1).tolist()}
    return frozenset(node for leaf in leaves for node in range(leaf * wide, (leaf + 1) * wide))


def members(plan: Plan, axes: Sequence[str]) -> NDArray[np.int64]:
    """Ranks of the groups of some axes: (pp, groups, members); of pp itself (1, groups, pp).

    `ep` alone stands for the expert-parallel groups.
    """
    order = plan.rank_order
    if axes == ("ep",):  # neighbours inside a stage, whatever axes these are of
        stages = members(plan, [axis for axis in order if axis != "pp"])[:, 0]
        blocks = stages.reshape(plan.pp, -1, plan.ep, plan.etp)
        return blocks.swapaxes(2, 3).reshape(plan.pp, -1, plan.ep)
    ranks = np.arange(plan.world_size).reshape([plan.degree(axis) for axis in order])
    inner = [order.index(axis) for axis in order if axis in axes]
    outer = [] if "pp" in axes else [order.index("pp")]
    others = [place for place in range(len(order)) if place not in (*inner, *outer)]
    size = int(np.prod([ranks.shape[place] for place in inner]))
    first = ranks.shape[outer[0]] if outer else 1
    return ranks.transpose(*outer, *others, *inner).reshape(first, -1, size)


def replica_of(plan: Plan) -> Indices:
    """The replica of each rank, (world,), numbered as the slots of `sim/slots.py`."""
    order = plan.rank_order
    ranks = np.arange(plan.world_size).reshape([plan.degree(axis) for axis in order])
    mesh = ranks.transpose([order.index(axis) for axis in AXES]).reshape(plan.pp, plan.dp, -1)
    found = np.empty(plan.world_size, dtype=np.int64)
    found[mesh] = np.arange(plan.dp)[None, :, None]
    return found
