"""Groups of ranks that communicate at the same time: what each loses to shared links.

A collective is one fluid over all links that it crosses: its slowest link holds back all others.

    alone       a ─▶ nic 0 ─▶        together   a ─▶ nic 0 ─▶   each at 1/2: two rings of a node
                                                b ─▶              with one interface for two GPUs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.topology import Link, Topology, build_topology
from parsim.cost.collectives import GLOO, Algorithm, Protocol
from parsim.sim.collective_sweep import Collective, Row, Sweep, Timings, bus_share, rated
from parsim.sim.group_layout import Layout

Array = NDArray[np.float64]
ENDLESS = 2.0**70
"""Bytes beside which latency and ramp are nothing."""
IN_NODE = ("nvlink", "pcie", "shared-memory")
FULL = 1.0 - 1e-9


class Shared(NamedTuple):
    """The link that holds a group back, and how many groups cross it."""

    name: str
    link_class: str
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Share of its rate alone that each group keeps, and where it is lost; None where it is not."""

    kept: tuple[float, ...]
    shared: tuple[Shared | None, ...]

    @property
    def worst(self) -> tuple[float, Shared | None]:
        """The group that loses most."""
        place = int(np.argmin(self.kept))
        return self.kept[place], self.shared[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentRow:
    """Seconds of a group alone and beside the others; the slowest group's."""

    alone: Row
    together: float
    shared: Shared | None
    measured_together: float | None = None
    together_mad: float | None = None

    @property
    def slowdown(self) -> float:
        """Together over alone."""
        return self.together / self.alone.seconds

    @property
    def measured_slowdown(self) -> float | None:
        """Together over alone as measured."""
        if self.alone.measured is None or self.measured_together is None:
            return None
        return self.measured_together / self.alone.measured

    def to_json(self) -> dict[str, Any]:
        """One entry of `concurrent.rows`."""
        shared = self.shared
        return {
            "collective": self.alone.collective,
            "bytes": self.alone.size,
            "time_alone_s": self.alone.seconds,
            "time_together_s": self.together,
            "slowdown": self.slowdown,
            "shared_link": shared and shared.name,
            "shared_class": shared and shared.link_class,
            "groups_on_link": shared and shared.groups,
            "measured_alone_s": self.alone.measured,
            "measured_together_s": self.measured_together,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrent:
    """All rows of a sweep with its groups running at once."""

    layout: Layout
    rows: tuple[ConcurrentRow, ...]

    def of(self, kind: Collective) -> tuple[ConcurrentRow, ...]:
        """Rows of one kind."""
        return tuple(row for row in self.rows if row.alone.collective == kind)

    def beside(self, measured: Timings) -> Concurrent:
        """The same rows with seconds measured with all groups at once."""
        rows = []
        for row in self.rows:
            median, mad = measured.get((row.alone.collective, row.alone.size), (None, None))
            rows.append(replace(row, measured_together=median, together_mad=mad))
        return replace(self, rows=tuple(rows))

    def to_json(self) -> dict[str, Any]:
        """What `--json` says under `concurrent`."""
        return {
            "groups": len(self.layout.groups),
            "ranks_per_group": self.layout.num_ranks,
            "groups_per_device": self.layout.per_device,
            "rows": [row.to_json() for row in self.rows],
        }


def together(
    found: Sweep, *, algorithm: Algorithm | None = None, protocol: Protocol | None = None
) -> Concurrent:
    """What the rows of a sweep take where all groups of its layout run them at once.

    T + S / B (1 / kept - 1): the share `kept` of the rate B that a group tends to alone. Latency
    and ramp stay. Where processors share a core, its calls wait too: T / kept.

    Source: max-min fair sharing, network-effective link rates of the system file.
    Leaves out: contention of small messages, switches that reduce for several groups at once,
    links inside a switch.
    """
    layout = found.layout
    cores = layout.system.library == GLOO and layout.per_device > 1
    rows: list[ConcurrentRow] = []
    for kind in found.kinds:
        kept, shared = contention(layout, kind).worst
        endless = rated(layout, kind, ENDLESS, algorithm, protocol).seconds / ENDLESS
        for row in found.of(kind):
            lost = (row.seconds if cores else row.size * endless) * (1.0 / kept - 1.0)
            rows.append(ConcurrentRow(alone=row, together=row.seconds + lost, shared=shared))
    return Concurrent(layout=layout, rows=tuple(rows))


def contention(layout: Layout, kind: Collective) -> Contention:
    """Max-min fair shares of groups that all run one kind of collective.

    use[g, l] is how busy group g alone keeps link l, 1 on the link that it is bound by: alone it
    runs at the rate of its slowest link, whatever part of it the library reaches.
    """
    topology = build_topology(layout.cluster)
    loads = [_loads(topology, layout, group, kind) for group in layout.groups]
    links = list(dict.fromkeys(link for load in loads for link in load))
    place = {link: i for i, link in enumerate(links)}
    use = np.zeros((len(loads), len(links)))
    for row, load in zip(use, loads, strict=True):
        for link, amount in load.items():
            row[place[link]] = amount / _rate(layout, link)
        row /= row.max()
    kept, at = shares(use)
    crossing = (use > 0).sum(axis=0)
    shared = [
        Shared(f"{links[i].source} -> {links[i].target}", links[i].link_class, int(crossing[i]))
        if i >= 0
        else None
        for i in at
    ]
    return Contention(kept=tuple(map(float, kept)), shared=tuple(shared))


def shares(use: Array) -> tuple[Array, NDArray[np.int64]]:
    """Progressive filling: all groups grow alike until a link is full, whose groups then stop.

    Args:
        use: part of each link that a group at its full rate takes, (groups, links).

    Returns:
        Each group's part of its full rate, and the link that stopped it; -1 for none.
    """
    kept = np.zeros(len(use))
    at = np.full(len(use), -1, dtype=np.int64)
    growing = np.ones(len(use), dtype=bool)
    free = np.ones(use.shape[1])
    while growing.any():
        demand = use[growing].sum(axis=0)
        steps = np.where(demand > 0, free / np.maximum(demand, 1e-300), np.inf)
        step = min(float(steps.min()), 1.0 - float(kept[growing].max()))
        kept[growing] += step
        free = free - step * demand
        whole = growing & (kept >= FULL)
        full = (demand > 0) & (steps <= step / FULL)
        stopped = growing & ~whole & (use[:, full] > 0).any(axis=1)
        for group in np.flatnonzero(stopped):
            at[group] = np.flatnonzero(full & (use[group] > 0))[0]
        growing &= ~(whole | stopped)
    return np.where(at < 0, 1.0, kept), at


def _rate(layout: Layout, link: Link) -> float:
    network = layout.system.network
    inside = link.link_class in IN_NODE or network is None
    efficiency = layout.system.intra.efficiency if inside or network is None else network.efficiency
    return link.bandwidth * efficiency


def _loads(
    topology: Topology, layout: Layout, group: Sequence[int], kind: Collective
) -> dict[Link, float]:
    """Bytes over each link, per byte of S."""
    found: dict[Link, float] = {}
    for sender, receiver, amount in _messages(layout, group, kind):
        for link in topology.path(sender, receiver):
            found[link] = found.get(link, 0.0) + amount
    return found


def _messages(
    layout: Layout, group: Sequence[int], kind: Collective
) -> Iterator[tuple[int, int, float]]:
    """Sender, receiver and bytes per byte of S.

    In a node a ring; between nodes each rank sends its part to its neighbour on its own rail (a
    ring for every rank of a node, each leaving it elsewhere). all-to-all: every pair of a node, and
    what goes elsewhere over the rank's rail. send/recv: each rank to the next one.
    """
    devices = layout.system.devices_per_node
    nodes: dict[int, list[int]] = {}
    for rank in group:
        nodes.setdefault(rank // devices, []).append(rank)
    held = list(nodes.values())
    ranks, several = len(group), len(held) > 1
    if kind == "send_recv":
        yield from ((a, b, 1.0) for a, b in pairwise([*group, group[0]]))
        return
    wire = bus_share(kind, ranks)
    for here, after in pairwise([*held, held[0]]):
        if kind == "all_to_all":
            inside = ((a, b) for a in here for b in here if a != b)
            part, out = 1.0 / ranks, (ranks - len(here)) / ranks
        else:
            inside = ((a, b) for a, b in pairwise([*here, here[0]]) if a != b)
            part = wire * ((len(here) - 1) / len(here) if several else 1.0)
            out = wire / len(here)
        yield from ((a, b, part) for a, b in inside)
        if several:
            yield from ((a, after[i % len(after)], out) for i, a in enumerate(here))
