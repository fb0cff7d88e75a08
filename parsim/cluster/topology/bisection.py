"""The bisection of a graph: what the two halves of its devices can send each other."""

from __future__ import annotations

from collections import deque

import numpy as np

from parsim.arrays import Flags
from parsim.cluster.topology.graph import Graph

_SAMPLE = 80
"""Devices that show which kinds of links are used: more than the largest node has."""


def bisection(graph: Graph) -> float:
    """Bytes/s from the first half of the ranks to the second, one direction, as quoted.

    min over cuts (A, B) of sum of capacity(a -> b), ranks 0 .. floor(R/2) - 1 in A and the others
    in B: the largest flow from all of the first half at once to all of the second (Ford and
    Fulkerson 1956; found by Dinic's algorithm). 0 for one rank.

    Only links of the kinds that routes between devices use count: hosts and their PCI Express join
    the halves too, but nothing between devices goes there where NVLink does.

    Leaves out: other ways to halve the devices; the efficiency of links; routes, which may not use
    all ways that a flow may.
    """
    half = len(graph.devices) // 2
    if half == 0:
        return 0.0
    return _Flow(graph, half, _used(graph)).largest()


def _used(graph: Graph) -> Flags:
    """Links of the kinds (of both ends, class) on routes of the first and the last device."""
    last = len(graph.devices) - 1
    some = {*range(min(_SAMPLE, last + 1)), *range(0, last + 1, last // _SAMPLE + 1), last}
    kinds = [name.partition(":")[0] for name in graph.nodes]
    ends = zip(graph.source.tolist(), graph.target.tolist(), graph.link_class, strict=True)
    kind_of = [(kinds[source], kinds[target], name) for source, target, name in ends]
    pairs = [(end, other) for end in (0, last) for other in sorted(some) if other != end]
    ways = [link for a, b in pairs for link in (*graph.route(a, b), *graph.route(b, a))]
    used = {kind_of[link] for link in ways}
    return np.array([kind in used for kind in kind_of])


class _Flow:
    """Dinic's algorithm on the graph with each half of the devices melted into one part."""

    def __init__(self, graph: Graph, half: int, used: Flags) -> None:
        melted = np.arange(len(graph.nodes))
        melted[graph.devices[:half]] = self.start = len(graph.nodes)
        melted[graph.devices[half:]] = self.end = len(graph.nodes) + 1
        self.near: list[list[int]] = [[] for _ in range(len(graph.nodes) + 2)]
        self.target: list[int] = []
        self.free: list[float] = []
        ends = zip(
            melted[graph.source].tolist(),
            melted[graph.target].tolist(),
            np.where(used, graph.capacity, 0.0).tolist(),
            strict=True,
        )
        for source, target, capacity in ends:
            if capacity and source != target and target != self.start and source != self.end:
                self._add(source, target, capacity)
        self.least = 1e-9 * float(graph.capacity.max())

    def _add(self, source: int, target: int, capacity: float) -> None:
        for part, other, free in ((source, target, capacity), (target, source, 0.0)):
            self.near[part].append(len(self.target))
            self.target.append(other)
            self.free.append(free)

    def largest(self) -> float:
        total = 0.0
        while (level := self._levels())[self.end] >= 0:
            tried = [0] * len(self.near)
            while (pushed := self._push(level, tried)) > 0.0:
                total += pushed
        return total

    def _levels(self) -> list[int]:
        level = [-1] * len(self.near)
        level[self.start] = 0
        queue = deque([self.start])
        while queue:
            part = queue.popleft()
            for link in self.near[part]:
                other = self.target[link]
                if level[other] < 0 and self.free[link] > self.least:
                    level[other] = level[part] + 1
                    queue.append(other)
        return level

    def _push(self, level: list[int], tried: list[int]) -> float:
        """One more way to the end along rising levels, filled; 0 where there is none."""
        path: list[int] = []
        part = self.start
        while part != self.end:
            while tried[part] < len(self.near[part]):
                link = self.near[part][tried[part]]
                if self.free[link] > self.least and level[self.target[link]] == level[part] + 1:
                    break
                tried[part] += 1
            else:
                if not path:
                    return 0.0
                part = self.target[path.pop() ^ 1]
                tried[part] += 1
                continue
            path.append(link)
            part = self.target[link]
        amount = min(self.free[link] for link in path)
        for link in path:
            self.free[link] -= amount
            self.free[link ^ 1] += amount
        return amount
