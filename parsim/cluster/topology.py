"""The graph of links of a cluster: which links a transfer between two ranks crosses.

    gpu:0 ── nvswitch:0 ── gpu:1                                         in a node
    gpu:0 ── nic:0.0 ── leaf:0 ── nic:1.0 ── gpu:8                       in a leaf group
    gpu:0 ── nic:0.0 ── leaf:0 ── spine ── leaf:1 ── nic:20.0 ── gpu:160 (DGX A100)

Links are directed and full duplex: each direction is a link with the whole bandwidth. Inside a node
the fabric decides: a hub (NVSwitch, shared memory), the DGX-1 mesh, or a PCIe tree. Between nodes a
rank uses its own interface (its rail); all rails of a leaf group count as one leaf switch.
Nothing is stored per rank, so a path costs the same on 8 ranks and on 100,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from parsim.cluster.hardware import Cluster, Network
from parsim.errors import CatalogError

LinkClass = Literal["nvlink", "pcie", "nic", "leaf", "spine", "shared-memory"]

# NVLinks between the eight V100 of a DGX-1 (row and column: GPU), the hybrid cube mesh that
# `nvidia-smi topo -m` prints as NV1 and NV2. Each row sums to the six links of a V100.
DGX1_LINKS = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
MESHES: Mapping[int, tuple[tuple[int, ...], ...]] = {2: ((0, 1), (1, 0)), 8: DGX1_LINKS}
"""Meshes by devices in a node: two cards with all bridges between them, and the DGX-1's."""

_CLASS_OF_FABRIC: Mapping[str, LinkClass] = {
    "nvswitch": "nvlink",
    "pcie": "pcie",
    "shared-memory": "shared-memory",
}

# Servers with eight PCIe cards have two sockets and a switch for every two cards.
_CARDS_PER_SWITCH = 2
_SOCKETS = 2


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link: bandwidth in bytes/s and latency in seconds, before efficiency.

    Latencies: inside a node half of `intra.latency` for each link at a switch, so that one switch
    costs a hop, and a whole one for a direct link. Between nodes half of `network.latency` for
    each cable to a leaf, wherever the leaf stands.
    """

    source: str
    target: str
    link_class: LinkClass
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Topology:
    """The links of a cluster, made on demand."""

    cluster: Cluster

    def node_of(self, rank: int) -> int:
        """Node that holds a rank.

        Raises:
            CatalogError: the cluster has no such rank.
        """
        devices = self.cluster.num_devices
        if not 0 <= rank < devices:
            raise CatalogError(
                f"rank={rank} is not in {self.cluster.num_nodes} x {self.cluster.system.id}; "
                f"allowed: 0 to {devices - 1}"
            )
        return rank // self.cluster.system.devices_per_node

    def path(self, rank_a: int, rank_b: int) -> tuple[Link, ...]:
        """Links from one rank to another in order; none from a rank to itself.

        Raises:
            CatalogError: the cluster has no such rank.
        """
        if self.node_of(rank_a) != self.node_of(rank_b):
            stops = (*self._to_leaf(rank_a), *reversed(self._to_leaf(rank_b)))
            return self._chain(_through_spine(stops))
        if rank_a == rank_b:
            return ()
        fabric = self.cluster.system.intra.fabric
        if fabric == "nvlink-mesh":
            return self._chain(self._mesh_stops(rank_a, rank_b))
        up, down = self._to_root(rank_a), self._to_root(rank_b)
        return self._chain(_shortest(up, down))

    def links(self) -> Iterator[Link]:
        """All links, both directions, each once; meant for small clusters."""
        edges = (edge for rank in range(self.cluster.num_devices) for edge in self._edges_of(rank))
        for source, target in dict.fromkeys(edges):
            yield self._link(source, target)
            yield self._link(target, source)

    def crossed(self, ranks: Sequence[int]) -> Mapping[str, int]:
        """Links that a ring over the ranks, in their order and back to the first, crosses.

        Returns:
            Link class to the number of different links of that class.

        Raises:
            CatalogError: the cluster has no such rank.
        """
        ring = [*ranks, *ranks[:1]]
        found = {
            (link.source, link.target): link.link_class
            for rank_a, rank_b in pairwise(ring)
            for link in self.path(rank_a, rank_b)
        }
        return dict(Counter(found.values()))

    def _edges_of(self, rank: int) -> Iterator[tuple[str, str]]:
        """The links at a rank and above it, as pairs of ends."""
        devices = self.cluster.system.devices_per_node
        if self.cluster.system.intra.fabric == "nvlink-mesh":
            first = self.node_of(rank) * devices
            for other in range(rank + 1, first + devices):
                if self._mesh[rank - first][other - first]:
                    yield f"gpu:{rank}", f"gpu:{other}"
        else:
            yield from pairwise(self._to_root(rank))
        if self.cluster.num_nodes > 1:
            to_leaf = self._to_leaf(rank)
            yield from pairwise(to_leaf)
            if self.cluster.num_nodes > self._network.nodes_per_leaf:
                yield to_leaf[-1], "spine"

    @property
    def _network(self) -> Network:
        network = self.cluster.system.network
        if network is None:
            raise CatalogError(f"system {self.cluster.system.id} has no network")
        return network

    def _to_root(self, rank: int) -> tuple[str, ...]:
        """Stops from a rank to the top of its node's tree; a hub is a tree of one level."""
        node, local = divmod(rank, self.cluster.system.devices_per_node)
        fabric = self.cluster.system.intra.fabric
        if fabric == "nvswitch":
            return f"gpu:{rank}", f"nvswitch:{node}"
        if fabric == "shared-memory":
            return f"gpu:{rank}", f"memory:{node}"
        socket = local * _SOCKETS // self.cluster.system.devices_per_node
        switch = f"pcie:{node}.{local // _CARDS_PER_SWITCH}"
        bridge = f"host:{node}.{socket}"
        # The second socket's bridge hangs on the first one's, which makes it the root.
        return f"gpu:{rank}", switch, *((bridge,) if socket == 0 else (bridge, f"host:{node}.0"))

    def _to_leaf(self, rank: int) -> tuple[str, str, str]:
        node, local = divmod(rank, self.cluster.system.devices_per_node)
        rail = local * self._network.nics_per_node // self.cluster.system.devices_per_node
        leaf = node // self._network.nodes_per_leaf
        return f"gpu:{rank}", f"nic:{node}.{rail}", f"leaf:{leaf}"

    def _mesh_stops(self, rank_a: int, rank_b: int) -> tuple[str, ...]:
        """Direct where there is a link, else over the neighbour with the widest narrower link."""
        first = self.node_of(rank_a) * len(self._mesh)
        row_a, row_b = self._mesh[rank_a - first], self._mesh[rank_b - first]
        if row_a[rank_b - first]:
            return f"gpu:{rank_a}", f"gpu:{rank_b}"
        widths = [min(widths) for widths in zip(row_a, row_b, strict=True)]
        return f"gpu:{rank_a}", f"gpu:{first + widths.index(max(widths))}", f"gpu:{rank_b}"

    def _chain(self, stops: Sequence[str]) -> tuple[Link, ...]:
        return tuple(self._link(source, target) for source, target in pairwise(stops))

    def _link(self, source: str, target: str) -> Link:
        """The link between two neighbouring stops, told by the kinds of its ends."""
        kinds = {source.partition(":")[0], target.partition(":")[0]}
        intra = self.cluster.system.intra
        if "spine" in kinds:
            net = self._network
            leaf = net.nodes_per_leaf * net.node_bandwidth / net.oversubscription
            return Link(source, target, "spine", leaf, 0.0)
        if "leaf" in kinds:
            net = self._network
            return Link(source, target, "leaf", net.nic_bandwidth, net.latency / 2)
        if "nic" in kinds:
            return Link(source, target, "nic", self._network.nic_bandwidth, 0.0)
        if kinds == {"gpu"}:
            width, links = self._mesh_width(source, target)
            bandwidth = intra.bandwidth * width / links
            return Link(source, target, "nvlink", bandwidth, intra.latency)
        link_class = _CLASS_OF_FABRIC[intra.fabric]
        return Link(source, target, link_class, intra.bandwidth, intra.latency / 2)

    @property
    def _mesh(self) -> tuple[tuple[int, ...], ...]:
        return MESHES[self.cluster.system.devices_per_node]

    def _mesh_width(self, source: str, target: str) -> tuple[int, int]:
        """How many NVLinks join two devices of a node, and how many one of them has in all."""
        first, second = (int(x.removeprefix("gpu:")) % len(self._mesh) for x in (source, target))
        return self._mesh[first][second], sum(self._mesh[first])


def build_topology(cluster: Cluster) -> Topology:
    """Topology of a cluster; links are made when they are asked for.

    Raises:
        CatalogError: a mesh of another size than those that are known.
    """
    system = cluster.system
    if system.intra.fabric == "nvlink-mesh" and system.devices_per_node not in MESHES:
        raise CatalogError(
            f"system {system.id}: fabric nvlink-mesh with devices_per_node="
            f"{system.devices_per_node} is not known; allowed: 2 (a bridged pair), "
            f"{len(DGX1_LINKS)} (the DGX-1)"
        )
    return Topology(cluster)


def _through_spine(stops: Sequence[str]) -> Sequence[str]:
    """Six stops between nodes: the spine joins two leaves, or the two leaves are one."""
    leaf_a, leaf_b = stops[2], stops[3]
    middle = (leaf_a,) if leaf_a == leaf_b else (leaf_a, "spine", leaf_b)
    return (*stops[:2], *middle, *stops[4:])


def _shortest(up: Sequence[str], down: Sequence[str]) -> tuple[str, ...]:
    """Up one branch of a tree to the first common stop, and down the other."""
    meet = next(stop for stop in up if stop in down)
    return (*up[: up.index(meet)], *reversed(down[: down.index(meet) + 1]))
