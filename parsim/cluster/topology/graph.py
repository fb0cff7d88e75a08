"""The record of a graph: directed links as arrays, devices by rank, what-if copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypedDict, Unpack

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cluster.hardware import Cable, LinkClass, check_placement
from parsim.cluster.topology.link import WEIGHTS, Link
from parsim.cluster.topology.routes import Neighbours, neighbours, reached_from, shortest
from parsim.errors import CatalogError, did_you_mean, shown


class _Links(TypedDict, total=False):
    """Fields of a graph that decide its ways."""

    nodes: tuple[str, ...]
    source: Index
    target: Index
    link_class: tuple[LinkClass, ...]
    capacity: Array
    effective: Array
    latency: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """Directed links of a cluster; links 2i and 2i + 1 are the two directions of one cable.

    `nodes` are the names of the parts; `source` and `target` index them, (L,). `capacity` is the
    quoted rate and `effective` what NCCL reaches of it, bytes/s, one direction; `latency` seconds.
    `devices` is the part that each rank is placed on, (R,). `seed` changes which of several equal
    routes a pair of devices gets.
    """

    nodes: tuple[str, ...]
    source: Index
    target: Index
    link_class: tuple[LinkClass, ...]
    capacity: Array
    effective: Array
    latency: Array
    devices: Index
    seed: int = 0
    _routes: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)
    _near: list[tuple[Neighbours, Neighbours]] = field(default_factory=list, repr=False)
    _places: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def num_links(self) -> int:
        """How many directed links there are."""
        return len(self.link_class)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the links, source->target."""
        ends = zip(self.source.tolist(), self.target.tolist(), strict=True)
        return tuple(f"{self.nodes[a]}->{self.nodes[b]}" for a, b in ends)

    def link(self, index: int) -> Link:
        """One link with the names of its ends."""
        return Link(
            self.nodes[self.source[index]],
            self.nodes[self.target[index]],
            self.link_class[index],
            float(self.capacity[index]),
            float(self.effective[index]),
            float(self.latency[index]),
        )

    def route(self, rank_a: int, rank_b: int) -> tuple[int, ...]:
        """Links from one rank to another, in order; none from a rank to itself.

        The cheapest by WEIGHTS; among those the one whose narrowest link is widest, then the one
        that starts on the widest link, then by a hash of the two devices and `seed` (ECMP).

        Raises:
            CatalogError: there is no such rank, or no way.
        """
        return self._route(self._device(rank_a), self._device(rank_b))

    def route_between(self, part_a: str, part_b: str) -> tuple[int, ...]:
        """Links from one part to another, in order, such as from a device to its host.

        Raises:
            CatalogError: there is no such part, or no way.
        """
        return self._route(self._part(part_a), self._part(part_b))

    def _route(self, start: int, end: int) -> tuple[int, ...]:
        if start == end:
            return ()
        route = self._routes.get((start, end))
        if route is None:
            leaving, arriving = self._neighbours()
            route = shortest(leaving, arriving, self.effective, start, end, self.seed)
            if not route:
                raise CatalogError(f"there is no way from {self.nodes[start]} to {self.nodes[end]}")
            self._routes[start, end] = route
        return route

    def with_links(self, **changes: Unpack[_Links]) -> Graph:
        """The graph with other parts or links, by field; its ways are looked for anew."""
        return replace(self, **changes, _routes={}, _near=[], _places={})

    def without(self, *names: str) -> Graph:
        """The graph with parts (nic:0.3) or cables (gpu:0->nvswitch:0, both directions) out of use.

        Raises:
            CatalogError: there is no such part or cable.
        """
        gone = np.zeros(self.num_links, dtype=bool)
        for name in names:
            gone |= self._touched(name)
        keep = np.flatnonzero(~gone)
        return self.with_links(
            source=self.source[keep],
            target=self.target[keep],
            link_class=tuple(self.link_class[i] for i in keep.tolist()),
            capacity=self.capacity[keep],
            effective=self.effective[keep],
            latency=self.latency[keep],
        )

    def joined(self, cables: Iterable[Cable]) -> Graph:
        """The graph with further cables, to parts that it has or to new ones."""
        names = {name: index for index, name in enumerate(self.nodes)}
        listed = list(cables)
        ends = [
            (names.setdefault(cable.source, len(names)), names.setdefault(cable.target, len(names)))
            for cable in listed
        ]
        pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
        capacity = np.repeat([cable.bandwidth for cable in listed], 2)
        efficiency = np.repeat([cable.efficiency for cable in listed], 2)
        classes = tuple(name for cable in listed for name in (cable.link_class, cable.link_class))
        return self.with_links(
            nodes=tuple(names),
            source=np.concatenate([self.source, pairs.reshape(-1)]),
            target=np.concatenate([self.target, pairs[:, ::-1].reshape(-1)]),
            link_class=(*self.link_class, *classes),
            capacity=np.concatenate([self.capacity, capacity]),
            effective=np.concatenate([self.effective, capacity * efficiency]),
            latency=np.concatenate(
                [self.latency, np.repeat([cable.latency for cable in listed], 2)]
            ),
        )

    def scaled(self, name: str, factor: float) -> Graph:
        """The graph with a class of links, a part's links or one cable faster or slower.

        Raises:
            CatalogError: a factor that is not above 0, or no such class, part or cable.
        """
        if not factor > 0.0:
            raise CatalogError(f"factor={factor} of {name} must be above 0; use without() instead")
        chosen = np.array([link_class == name for link_class in self.link_class])
        times = np.where(chosen if chosen.any() else self._touched(name), factor, 1.0)
        return self.with_links(capacity=self.capacity * times, effective=self.effective * times)

    def placed(self, placement: Sequence[int]) -> Graph:
        """The graph with rank i on the device that rank placement[i] has now.

        Raises:
            CatalogError: a device twice or out of range, or another number of ranks.
        """
        check_placement(placement, len(self.devices))
        return replace(self, devices=self.devices[np.asarray(placement, dtype=np.int64)])

    def cut_off(self) -> tuple[str, ...]:
        """Devices that the first device has no way to."""
        first = int(self.devices[0])
        leaving, arriving = self._neighbours()
        reached = reached_from(first, leaving) & reached_from(first, arriving)
        return tuple(
            self.nodes[device] for device in self.devices.tolist() if device not in reached
        )

    def _touched(self, name: str) -> Flags:
        """Which links belong to a part or a cable."""
        source, arrow, target = name.partition("->")
        start = self._part(source)
        if not arrow:
            return np.asarray((self.source == start) | (self.target == start))
        end = self._part(target)
        links = (self.source == start) & (self.target == end)
        links |= (self.source == end) & (self.target == start)
        if not links.any():
            raise CatalogError(f"no cable joins {source} and {target}")
        return np.asarray(links)

    def _part(self, name: str) -> int:
        if not self._places:
            self._places.update((part, index) for index, part in enumerate(self.nodes))
        if name not in self._places:
            hint = did_you_mean(name, self.nodes[:2000])
            message = f"there is no part '{shown(name)}'{hint}; parts are {_examples(self.nodes)}"
            raise CatalogError(message)
        return self._places[name]

    def _device(self, rank: int) -> int:
        if not 0 <= rank < len(self.devices):
            last = len(self.devices) - 1
            raise CatalogError(f"rank={rank} is not in the cluster; allowed: 0 to {last}")
        return int(self.devices[rank])

    def _neighbours(self) -> tuple[Neighbours, Neighbours]:
        if not self._near:
            weights = [WEIGHTS[name] for name in self.link_class]
            self._near.append(neighbours(len(self.nodes), self.source, self.target, weights))
        return self._near[0]


def make_graph(cables: Iterable[Cable], devices: Iterable[str], seed: int = 0) -> Graph:
    """Both directions of every cable; parts in the order in which they are first named."""
    names = tuple(dict.fromkeys(devices))
    none, rates = np.empty(0, dtype=np.int64), np.empty(0)
    bare = Graph(
        nodes=names,
        source=none,
        target=none,
        link_class=(),
        capacity=rates,
        effective=rates,
        latency=rates,
        devices=np.arange(len(names)),
        seed=seed,
    )
    return bare.joined(cables)


@lru_cache(maxsize=8)
def _examples(nodes: tuple[str, ...]) -> str:
    """One part of each kind."""
    kinds = {name.partition(":")[0]: name for name in reversed(nodes)}
    return ", ".join(reversed(kinds.values()))
