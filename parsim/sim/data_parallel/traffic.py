"""What a strategy's workers and servers send, as kinds of traffic over the links of a cluster.

    push, pull    of each worker: its gradient's or weights' shares, to or from all servers at once
    exchange      of each worker: its weights to all neighbours of the step
    copy          of one worker to another: what a branch hands on
    pair          of each worker and each peer: weights both ways
    collectives   of all who meet in one, by the edges of its algorithm

As for a step's collectives (`sim/traffic`), `limit` and `latency_share` of a kind make it take its
price on idle links, and the links are those of the cluster's graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import get_args

import numpy as np

from parsim.arrays import Array
from parsim.cluster.topology import Graph
from parsim.cluster.topology.storage import Ends
from parsim.cost.collective.collectives import p2p_time, waiting_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.server_wires import ServerWires
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.links.collective_flows import algorithm_of, on_nodes, pattern, slowest, usage_of
from parsim.sim.traffic.step_traffic import Role, Sent, sent_alone
from parsim.strategy.task import Meeting, Task

Way = tuple[tuple[str, ...], float]
"""Parts from one end to the other, and the share of the message that goes there."""
Usage = dict[int, float]
"""Units on each link."""
COLLECTIVES: dict[str, CollectiveKind] = {kind: kind for kind in get_args(CollectiveKind)}
"""Routes that are collectives."""


def role_of(task: str, ends: tuple[int, ...]) -> Role:
    """The role of what travels in a task: by who sends, of a pair by both."""
    return Role(task, *ends)


def strategy_traffic(
    workers: Workers, priced: Priced, graph: Graph, whole: Graph
) -> dict[Role, Sent]:
    """Every kind of traffic of a priced program on the links of its cluster.

    Args:
        workers: who sends.
        priced: what, and how long it takes on idle links.
        graph: the links.
        whole: those on which prices hold: of `graph` with nothing broken.

    Raises:
        CatalogError: a server's node has no host in the topology, or there is no way to it.
    """
    maker = _Maker(workers, priced, graph, whole)
    return {
        role: sent for task in priced.program.tasks if task.routes for role, sent in maker.of(task)
    }


class _Maker:
    """Makes the kinds of traffic of a program's tasks."""

    def __init__(self, workers: Workers, priced: Priced, graph: Graph, whole: Graph) -> None:
        self.workers, self.priced = workers, priced
        self.graph, self.whole = graph, whole
        self.ends = Ends(graph)
        self.part = [graph.nodes[device] for device in graph.devices.tolist()]

    def of(self, task: Task) -> Iterator[tuple[Role, Sent]]:
        """The kinds of a task: one of all who meet, or of each rank, or of each two."""
        if task.meets is not Meeting.NOBODY:
            yield role_of(task.name, task.ranks[:1]), self._collective(task)
            return
        for position, rank in enumerate(task.ranks):
            for ends, ways in self._ways(task, position, rank):
                yield role_of(task.name, ends), self._message(task, position, ways)

    def _ways(
        self, task: Task, position: int, rank: int
    ) -> Iterator[tuple[tuple[int, ...], list[Way]]]:
        """Who sends what where, for a task of one rank."""
        route, wires = task.routes[0], self.priced.wires
        if task.to:
            yield (rank,), [self._copy(rank, task.to[position])]
        elif route == "pair":
            for peer in (other for other in task.ranks if other != rank):
                yield (rank, peer), [self._copy(rank, peer), self._copy(peer, rank)]
        elif wires is not None:
            ways = list(self._to_servers(rank, wires))
            turned = [(parts[::-1], share) for parts, share in ways]
            yield (rank,), ways if route == "push" else turned
        else:
            peers = task.gate.of[position] if task.gate else ()
            yield (rank,), [self._copy(rank, peer) for peer in peers]

    def _copy(self, source: int, target: int) -> Way:
        return (self.part[source], self.part[target]), 1.0

    def _to_servers(self, rank: int, wires: ServerWires) -> Iterator[Way]:
        """A worker's shares to all servers; a host of another node by all its interfaces alike."""
        device, share = self.part[rank], 1.0 / len(wires.node)
        for server, node in enumerate(wires.node.tolist()):
            if not wires.on_hosts:
                yield (device, self.part[int(wires.rank[server])]), share
            elif node == int(self.workers.node[rank]):
                yield (device, self._host(device, node)), share
            else:
                nics = self.ends.of_node("nic", node)
                for nic in nics:
                    yield (device, nic, self._host(nic, node)), share / len(nics)

    def _host(self, part: str, node: int) -> str:
        """The host that is nearest to a part of a node; the memory that its devices share."""
        memory = f"memory:{node}"
        return memory if memory in self.graph.nodes else self.ends.nearest_host(part, node)

    def _message(self, task: Task, position: int, ways: Iterable[Way]) -> Sent:
        """What a worker sends: as fast as its price where nobody else does."""
        ways = list(ways)
        used, intact = _usage(self.graph, ways), _usage(self.whole, ways)
        system = self.workers.systems[int(self.workers.node[task.ranks[position]])]
        crosses = any(self.graph.link_class[link] == "nic" for link in used)
        least = float(p2p_time(system, 1.0, crosses=crosses, sharing=1.0))
        return self._alone(task, position, (used, intact), self._size(task, position), least)

    def _collective(self, task: Task) -> Sent:
        """What all who meet send, by the algorithm whose bandwidth the closed form takes."""
        system = self.workers.systems[int(self.workers.node[task.ranks[0]])]
        nodes = on_nodes(task.ranks, self.workers.node[list(task.ranks)].tolist())
        kind, ranks = COLLECTIVES[task.routes[0]], task.ranks
        stride = ranks[-1] - ranks[-2] if len(ranks) > 1 else 1
        where = one_group(system, len(ranks), stride)
        made, size = pattern(kind, algorithm_of(system, kind, where), nodes), self._size(task, 0)
        least = float(waiting_time(system, kind, size, where, queued=True)[0])
        used, intact = (usage_of(links, made.edges) for links in (self.graph, self.whole))
        return self._alone(task, 0, (used, intact), made.share * size, least)

    def _size(self, task: Task, position: int) -> float:
        return _of_rank(task, position, self.priced.carried[_price(task)])

    def _alone(
        self, task: Task, position: int, links: tuple[Usage, Usage], size: float, least: float
    ) -> Sent:
        seconds = _of_rank(task, position, self.priced.seconds[_price(task)])
        used, intact = links
        peak = slowest(self.whole, intact)
        return sent_alone(used, peak, size, max(seconds, least), least)


def _usage(graph: Graph, ways: Iterable[Way]) -> Usage:
    """How often a message takes each link."""
    used: Usage = {}
    for parts, share in ways:
        for start, end in pairwise(parts):
            for link in graph.route_between(start, end):
                used[link] = used.get(link, 0.0) + share
    return used


def _of_rank(task: Task, position: int, price: Array | float) -> float:
    """What a price, or a size, is for one of a task's ranks."""
    values = np.atleast_1d(price)
    rows = task.rows(values) if len(values) > 1 else values
    return float(np.broadcast_to(rows, (len(task.ranks),))[position])


def _price(task: Task) -> str:
    """The name of what a task takes on idle links."""
    return task.price or task.queues[0].price
