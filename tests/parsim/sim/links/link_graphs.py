"""A small graph of links for the tests of flows: nodes on a switch, interfaces, leaves, a spine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import Cluster, System
from parsim.cost.collective.collectives import collective_time, p2p_time, waiting_time
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.sim.benchmark.group_layout import GroupLayout
from parsim.sim.links.collective_flows import (
    CollectiveFlow,
    LinkGraph,
    algorithm_of,
    by_node,
    pattern,
    timed_flow,
    usage_of,
)


@dataclass
class RailGraph:
    """gpu -- hub -- gpu in a node; gpu -- nic -- leaf -- (spine) between nodes; made on demand."""

    cluster: Cluster
    rates: list[float] = field(default_factory=list)
    link_class: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    @property
    def effective(self) -> Array:
        return np.array(self.rates)

    def route(self, rank_a: int, rank_b: int) -> tuple[int, ...]:
        system = self.cluster.system
        (a, i), (b, j) = (divmod(rank, system.devices_per_node) for rank in (rank_a, rank_b))
        inside = system.intra.bandwidth * system.intra.efficiency
        if a == b:
            return (self._link(f"gpu:{rank_a}->hub:{a}", "nvlink", inside),
                    self._link(f"hub:{a}->gpu:{rank_b}", "nvlink", inside))  # fmt: skip
        network = system.network
        assert network is not None
        nic = network.nic_bandwidth * network.efficiency
        rails = [x * network.nics_per_node // system.devices_per_node for x in (i, j)]
        leaves = [x // network.nodes_per_leaf for x in (a, b)]
        path = [self._link(f"nic:{a}.{rails[0]}->leaf:{leaves[0]}", "nic", nic)]
        if leaves[0] != leaves[1]:
            up = network.nodes_per_leaf * network.node_bandwidth / network.oversubscription
            for name in (f"leaf:{leaves[0]}->spine", f"spine->leaf:{leaves[1]}"):
                path.append(self._link(name, "spine", up * network.efficiency))
        return (*path, self._link(f"leaf:{leaves[1]}->nic:{b}.{rails[1]}", "nic", nic))

    def _link(self, name: str, link_class: str, rate: float) -> int:
        if name not in self.known:
            self.known[name] = len(self.names)
            self.names.append(name)
            self.rates.append(rate)
            self.link_class.append(link_class)
        return self.known[name]


def placed(system: System, ranks: Sequence[int]) -> Groups:
    """One group's placement with nobody beside it."""
    nodes = max(ranks) // system.devices_per_node + 1
    cluster = Cluster(system=system, num_nodes=nodes)
    return GroupLayout(cluster=cluster, groups=(tuple(ranks),)).alone


def collective_flow(
    system: System, graph: LinkGraph, kind: CollectiveKind, size: float, ranks: Sequence[int]
) -> CollectiveFlow:
    """One collective of a group, with the closed form's seconds."""
    where = placed(system, ranks)
    seconds = float(collective_time(system, kind, size, where)[0])
    least = float(waiting_time(system, kind, size, where)[0])
    nodes = by_node(ranks, system.devices_per_node)
    made = pattern(kind, algorithm_of(system, kind, where), nodes)
    return timed_flow(graph, usage_of(graph, made.edges), made.share * size, seconds, least)


def message_flow(
    system: System, graph: LinkGraph, size: float, source: int, target: int
) -> CollectiveFlow:
    """One message, with the closed form's seconds."""
    crosses = len(by_node((source, target), system.devices_per_node)) > 1
    seconds, least = (float(p2p_time(system, s, crosses=crosses, sharing=1.0)) for s in (size, 1.0))
    return timed_flow(graph, usage_of(graph, [(source, target, 1.0)]), size, seconds, least)
