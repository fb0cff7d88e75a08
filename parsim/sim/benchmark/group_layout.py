"""Which ranks the communicating groups of a benchmark hold, and how one of them lies on nodes.

Two ways to say it, on nodes of 4:

    2 nodes, 4 ranks, 2 at once     node 0: a a b b | node 1: a a b b     spread over the nodes
    tp=4, dp=2                      node 0: a b c d | node 1: a b c d     an axis of a plan's mesh

Groups beyond the devices of a node start again at its first device and share them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from parsim.cluster.hardware import Cluster, System
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.mesh_links import ranks_share
from parsim.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """Groups of ranks that communicate at the same time, all alike, on nodes of one system."""

    cluster: Cluster
    groups: tuple[tuple[int, ...], ...]

    @property
    def system(self) -> System:
        """The nodes' system."""
        return self.cluster.system

    @property
    def num_ranks(self) -> int:
        """Ranks of one group."""
        return len(self.groups[0])

    @property
    def num_nodes(self) -> int:
        """Nodes that one group touches."""
        return len(self._ranks_by_node)

    @property
    def per_device(self) -> int:
        """The most groups that have a rank on one device."""
        return max(Counter(rank for group in self.groups for rank in group).values())

    @property
    def _ranks_by_node(self) -> Counter[int]:
        """Ranks of the first group by node."""
        return Counter(rank // self.system.devices_per_node for rank in self.groups[0])

    @property
    def alone(self) -> Groups:
        """The first group's placement with nobody beside it, one column."""
        by_node = self._ranks_by_node
        network = self.system.network
        leaf = network.nodes_per_leaf if network else 1
        column = {"size": self.num_ranks, "per_node": min(by_node.values()), "nodes": len(by_node)}
        values = {name: np.array([float(value)]) for name, value in column.items()}
        leaves = len(by_node) > 1 and len({node // leaf for node in by_node}) > 1
        leaf_of = [node // leaf for node in (*by_node, next(iter(by_node)))]
        crossings = Counter(here for here, there in pairwise(leaf_of) if here != there)
        ring, pairs = ranks_share(self.system, self.groups[0])
        return Groups(
            **values,
            sharing=np.array([1.0 if len(by_node) > 1 else 0.0]),
            leaves=np.array([leaves]),
            crossing=np.array([max(crossings.values(), default=leaf) / leaf]),
            ring_share=np.array([ring]),
            pair_share=np.array([pairs]),
        )


def spread_layout(
    system: System, nodes: int, ranks: int | None = None, at_once: int = 1
) -> GroupLayout:
    """Groups of `ranks` ranks (default: every device), equally many on each of the nodes.

    Raises:
        CatalogError: several nodes of a system without a network.
        PlanError: ranks that do not fit the nodes or cannot be shared out equally.
    """
    cluster = Cluster(system=system, num_nodes=nodes)
    ranks = cluster.num_devices if ranks is None else ranks
    _check_ranks(cluster, ranks)
    devices, ranks_per_node = system.devices_per_node, ranks // nodes
    groups = tuple(
        tuple(
            node * devices + (first * ranks_per_node + i) % devices
            for node in range(nodes)
            for i in range(ranks_per_node)
        )
        for first in range(at_once)
    )
    return GroupLayout(cluster=cluster, groups=groups)


def _check_ranks(cluster: Cluster, ranks: int) -> None:
    """Refuse a group that the nodes cannot hold, or not equally many ranks of it each."""
    nodes, most = cluster.num_nodes, cluster.num_devices
    if ranks > most:
        raise PlanError(
            f"ranks={ranks} is more than the {most} devices of {nodes} x "
            f"{cluster.system.id}; allowed: 2 to {most}, or more --nodes"
        )
    if ranks < 2:
        raise PlanError(
            f"ranks={ranks}: a group of one rank exchanges nothing; allowed: 2 to {most}"
        )
    if ranks % nodes:
        raise PlanError(
            f"ranks={ranks} cannot be shared out equally over nodes={nodes}; allowed: multiples "
            f"of {nodes} up to {most}"
        )


def axis_layout(system: System, nodes: int, degrees: Mapping[str, int]) -> GroupLayout:
    """All groups of the last axis of a mesh whose axes are given innermost first.

    tp=8, dp=2 are the eight groups of two ranks that lie 8 apart.

    Raises:
        CatalogError: several nodes of a system without a network.
        PlanError: more ranks than devices, or a last axis of one rank.
    """
    cluster = Cluster(system=system, num_nodes=nodes)
    mesh = ",".join(f"{axis}={degree}" for axis, degree in degrees.items())
    world = math.prod(degrees.values())
    if world > cluster.num_devices:
        raise PlanError(
            f"group {mesh} has {world} ranks, more than the {cluster.num_devices} devices of "
            f"{nodes} x {system.id}; use smaller degrees or more --nodes"
        )
    size = list(degrees.values())[-1]
    if size < 2:
        raise PlanError(
            f"group {mesh}: the last axis communicates, and one rank exchanges nothing; "
            f"give it a degree of 2 or more"
        )
    stride = world // size
    groups = tuple(tuple(base + i * stride for i in range(size)) for base in range(stride))
    return GroupLayout(cluster=cluster, groups=groups)
