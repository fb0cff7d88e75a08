"""Storage on the fabric, and the ways of background traffic from devices, hosts and storage.

gpu:0 ── pcie:0.0 ── host:0.0                                   device to host
host:0.0 ── pcie:0.0 ── nic:0.0 ── leaf:0.0 ─┐                  host to storage, evenly over
host:0.0 ── pcie:0.1 ── nic:0.1 ── leaf:0.1 ─┴ storage ── disks the interfaces of the node
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from parsim.arrays import Index
from parsim.cluster.background import Place, Stream
from parsim.cluster.hardware import Cable
from parsim.cluster.topology.graph import Graph
from parsim.errors import CatalogError

STORAGE, DISKS = "storage:0", "disks:0"
_TOPS = ("spine", "leaf", "router")

Way = tuple[tuple[str, ...], float]
"""Parts from one end to the other, and the share of the stream that goes there."""


def with_storage(graph: Graph, bandwidth: float) -> Graph:
    """The graph with storage of a bandwidth (bytes/s, each way) on its highest switches.

    Each of those has a cable of the whole bandwidth; what all get together is that of the disks.

    Raises:
        CatalogError: there is no switch to join.
    """
    kinds = [name.partition(":")[0] for name in graph.nodes]
    top = next((kind for kind in _TOPS if kind in kinds), None)
    if top is None:
        raise CatalogError("there is no switch between nodes, so storage has nowhere to hang on")
    cables = [
        Cable(name, STORAGE, "storage", bandwidth)
        for name, kind in zip(graph.nodes, kinds, strict=True)
        if kind == top
    ]
    disks = Cable(STORAGE, DISKS, "storage", bandwidth)
    return graph.joined([*cables, disks])


def stream_links(
    graph: Graph, stream: Stream, devices: Sequence[int], node_of: Index
) -> dict[int, float]:
    """Links that a stream of some devices' nodes crosses, and how many flows' worth on each.

    `node_of` is the node of each device of the cluster.

    One flow is that of a device where a device is at an end, else that of a node.

    Raises:
        CatalogError: a node has no host, or there is no way.
    """
    used: dict[int, float] = {}
    for parts, share in _ways(graph, (stream.source, stream.target), devices, node_of):
        for start, end in pairwise(parts):
            for link in graph.route_between(start, end):
                used[link] = used.get(link, 0.0) + share
    return used


def _ways(
    graph: Graph, ends: tuple[Place, Place], devices: Sequence[int], node_of: Index
) -> Iterator[Way]:
    turned = ends[0] == "storage" or ends == ("hosts", "devices")
    inner, outer = reversed(ends) if turned else ends
    finder, nodes = Ends(graph), node_of[list(devices)].tolist()
    if inner == "devices":
        for device, node in zip(devices, nodes, strict=True):
            name = f"gpu:{device}"
            end = DISKS if outer == "storage" else finder.nearest_host(name, node)
            yield ((end, name) if turned else (name, end)), 1.0
        return
    for node in sorted(set(nodes)):
        nics = finder.of_node("nic", node)
        for nic in nics:
            parts = (finder.nearest_host(nic, node), nic, DISKS)
            yield (parts[::-1] if turned else parts), 1.0 / len(nics)


class Ends:
    """Parts of each node by kind, those that cables lead to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parts: dict[tuple[str, int], list[str]] = {}
        joined = set(graph.source.tolist())
        for name in (graph.nodes[part] for part in sorted(joined)):
            kind, _, number = name.partition(":")
            node = number.partition(".")[0]
            if kind in ("host", "nic") and node.isdigit():
                self.parts.setdefault((kind, int(node)), []).append(name)

    def of_node(self, kind: str, node: int) -> list[str]:
        """Parts of a kind in a node.

        Raises:
            CatalogError: it has none.
        """
        parts = self.parts.get((kind, node))
        if not parts:
            raise CatalogError(
                f"node {node} has no part {kind}:...; background traffic needs one: add cables to "
                f"it to the topology, or leave the stream out"
            )
        return parts

    def nearest_host(self, part: str, node: int) -> str:
        """The host with the fewest links on the way; the first of equal ones."""
        hosts = self.of_node("host", node)
        return min(hosts, key=lambda host: len(self.graph.route_between(part, host)))
