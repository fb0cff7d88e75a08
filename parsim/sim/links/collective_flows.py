"""A collective as one flow over the links that its algorithm's edges cross.

    ring over 2 nodes of 4     0 > 1 > 2 > 3        a ring for each of the 4 interfaces: an edge
                               v   v   v   v        between nodes carries one of them, an edge in
                               4 > 5 > 6 > 7        a node the 3 that do not leave from there

All edges of a collective move at one rate, that of its slowest edge, so the collective is one flow
whose `usage` of a link counts its edges there. The unit is one edge of the smallest kind, so that
on a shared link every edge of every collective gets the same.

The algorithm is the one with the most bandwidth, whose bandwidth the closed form takes.

Idle network: latency + bytes / limit is `collective_time` to the last digits. The latency is that
of `waiting_time`; the limit is the rate at which the rest takes the closed form's seconds. Where
that rate asks more of a link of the whole network than it has (the closed form is measured, the
link quoted), the flow's usage of all its links is scaled down to fit; broken links keep that scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import GLOO, Groups
from parsim.cost.collective.kinds import Algorithm, CollectiveKind, wire_share
from parsim.cost.collective.modelled import bandwidths
from parsim.sim.links.fair_share import Flows
from parsim.sim.links.flows import Carried, Traffic, carry

LEAST_FLOWING = 1e-6
"""Least share of a collective's time that its bytes flow; the rest may be latency."""


class LinkGraph(Protocol):
    """What flows need of a topology: links with their effective rates (bytes/s), and routes."""

    @property
    def effective(self) -> Array:
        """Bytes/s that NCCL reaches on each link, (L,)."""

    @property
    def link_class(self) -> Sequence[str]:
        """Class of each link, (L,)."""

    @property
    def names(self) -> Sequence[str]:
        """Name of each link, (L,)."""

    def route(self, rank_a: int, rank_b: int) -> tuple[int, ...]:
        """Links from one rank to another."""


Edge = tuple[int, int, float]
"""From rank, to rank, number of unit edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Edges of a collective, and the bytes that a unit edge carries for each byte of S."""

    edges: tuple[Edge, ...]
    share: float


def pattern(kind: CollectiveKind, algorithm: Algorithm, nodes: Sequence[Sequence[int]]) -> Pattern:
    """What an algorithm sends between the ranks of one group, node by node.

    With k ranks in the fullest node and n in all, a unit edge carries of S
      ring, PAT     wire share / k (of one node: wire share); k - 1 units inside a node
      tree          1 / 2k: two trees of nodes, up and down; 4 (k - 1) units inside
      NVLS          (n + 1) / n inside one node: the switch reduces; joined by trees 2 (k + 1) units
      CollNet       1 / k: switches between nodes reduce; 2 (k - 1) units inside
      p2p           1 / n for every pair (all-to-all)
    Broadcast and reduce are rings without the edge that closes them.

    Source: NCCL's rings (one a channel, each leaving a node by its own interface), its double
    binary trees, NVLS.
    Leaves out: which neighbours NCCL's search picks inside a node; here they are in rank order.
    """
    full = max(len(node) for node in nodes)
    count = sum(len(node) for node in nodes)
    if kind == "all_to_all":
        ranks = [rank for node in nodes for rank in node]
        pairs = tuple((a, b, 1.0) for a in ranks for b in ranks if a != b)
        return Pattern(edges=pairs, share=1.0 / count)
    closed = kind not in ("broadcast", "reduce")
    whole = float(wire_share(kind, np.array([float(count)]))[0])
    if len(nodes) == 1:
        reduces = algorithm == "nvls"
        share = (count + 1.0) / count if reduces else whole
        return Pattern(edges=tuple(_inside(nodes, 1.0, closed)), share=share)
    if algorithm in ("tree", "nvls_tree"):
        units = 2.0 * (full + 1) if algorithm == "nvls_tree" else 4.0 * (full - 1)
        inside = _inside(nodes, units)
        return Pattern(edges=(*inside, *_trees(nodes, full)), share=0.5 / full)
    if algorithm == "collnet":
        edges = (*_inside(nodes, 2.0 * (full - 1)), *_rails(nodes, full, True))
        return Pattern(edges=edges, share=1.0 / full)
    edges = (*_inside(nodes, full - 1.0), *_rails(nodes, full, closed))
    return Pattern(edges=edges, share=whole / full)


def _inside(nodes: Sequence[Sequence[int]], units: float, closed: bool = True) -> Iterator[Edge]:
    """Around each node; a lone rank sends nothing."""
    for node in nodes:
        if len(node) > 1 and units > 0.0:
            last = len(node) if closed or len(nodes) > 1 else len(node) - 1
            for index in range(last):
                yield node[index], node[(index + 1) % len(node)], units


def _rails(nodes: Sequence[Sequence[int]], full: int, closed: bool) -> Iterator[Edge]:
    """From every rank of a node to its like in the next one; `full` units leave each node."""
    for index in range(len(nodes) if closed else len(nodes) - 1):
        yield from _joined(nodes[index], nodes[(index + 1) % len(nodes)], full)


def _joined(sources: Sequence[int], targets: Sequence[int], full: int) -> Iterator[Edge]:
    """From every rank of a node to its like in another one."""
    for index, rank in enumerate(sources):
        yield rank, targets[index % len(targets)], full / len(sources)


def _trees(nodes: Sequence[Sequence[int]], full: int) -> Iterator[Edge]:
    """Two binary trees over the nodes, the second one shifted by one, up and down each edge."""
    count = len(nodes)
    for shift in (0, 1):
        for child in range(1, count):
            parent = _parent(child, count)
            low, high = nodes[(child + shift) % count], nodes[(parent + shift) % count]
            yield from _joined(low, high, full)
            yield from _joined(high, low, full)


def _parent(child: int, count: int) -> int:
    """In NCCL's binary tree: leaves are odd, a node's parent clears its lowest bit, sets the next.

    0 is the root; its only child is the largest power of two below `count`.
    """
    bit = child & -child
    up = (child ^ bit) | (bit << 1)
    return up if up < count else child ^ bit


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFlow:
    """One collective: `links` and its `usage` of them, bytes of a unit edge, rate and latency."""

    links: tuple[int, ...]
    usage: tuple[float, ...]
    size: float
    limit: float
    latency: float


def by_node(ranks: Iterable[int], devices_per_node: int) -> tuple[tuple[int, ...], ...]:
    """Ranks of each node that a group touches, in the order in which the group reaches them."""
    in_order = list(ranks)
    return on_nodes(in_order, [rank // devices_per_node for rank in in_order])


def on_nodes(ranks: Iterable[int], node_of: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Ranks of each node, by the node of each rank, in the order of the ranks."""
    nodes: dict[int, list[int]] = {}
    for rank, node in zip(ranks, node_of, strict=True):
        nodes.setdefault(node, []).append(rank)
    return tuple(tuple(node) for node in nodes.values())


def usage_of(graph: LinkGraph, edges: Iterable[Edge]) -> dict[int, float]:
    """Unit edges on each link that the edges' routes cross."""
    used: dict[int, float] = {}
    for source, target, units in edges:
        for link in graph.route(source, target):
            used[link] = used.get(link, 0.0) + units
    return used


def algorithm_of(system: System, kind: CollectiveKind, where: Groups) -> Algorithm:
    """The algorithm whose bandwidth the closed form of a collective takes; gloo has its ring."""
    if kind == "all_to_all":
        return "p2p"
    if system.library == GLOO:
        return "ring"
    rates = bandwidths(system, kind, where)
    return max(rates, key=lambda name: float(rates[name][0]))


def slowest(graph: LinkGraph, used: Mapping[int, float]) -> float:
    """Seconds that a byte of each unit edge takes on the link that it fills first."""
    rates = graph.effective
    return max((units / float(rates[link]) for link, units in used.items()), default=0.0)


def scale_to_fit(graph: LinkGraph, used: Mapping[int, float], limit: float) -> float:
    """The share of its usage that a flow may count, so that its limit fits the whole network."""
    return 1.0 / max(1.0, limit * slowest(graph, used))


def rate_of(seconds: float, least: float, size: float) -> tuple[float, float]:
    """(latency, limit) of `size` bytes that take `seconds`, of which `least` are latency."""
    latency = min(least, (1.0 - LEAST_FLOWING) * seconds)
    return latency, size / (seconds - latency)


def timed_flow(
    graph: LinkGraph, used: Mapping[int, float], size: float, seconds: float, least: float
) -> CollectiveFlow:
    """A flow that takes its `seconds` where nobody is beside it.

    Args:
        graph: the links.
        used: unit edges on each link.
        size: bytes of a unit edge.
        seconds: of all of them.
        least: those of them that are latency.
    """
    latency, limit = rate_of(seconds, least, size)
    scale = scale_to_fit(graph, used, limit)
    return CollectiveFlow(
        links=tuple(used),
        usage=tuple(scale * units for units in used.values()),
        size=size,
        limit=limit,
        latency=latency,
    )


def together(flows: Sequence[CollectiveFlow], graph: LinkGraph) -> Carried:
    """Collectives that all start at 0, each carried to its end."""
    shared = Flows.of(
        [flow.links for flow in flows],
        graph.effective,
        usage=[flow.usage for flow in flows],
        limit=[flow.limit for flow in flows],
    )
    return carry(
        Traffic.of(
            shared,
            np.array([flow.size for flow in flows]),
            latency=np.array([flow.latency for flow in flows]),
        )
    )
