"""Groups of ranks that communicate at the same time: what each loses to shared links.

A collective is one fluid over all links that it crosses: its slowest link holds back all others.

    alone       a ─▶ nic 0 ─▶        together   a ─▶ nic 0 ─▶   each at 1/2: two rings of a node
                                                b ─▶              with one interface for two GPUs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from parsim.cluster.topology import Graph, build_graph
from parsim.cost.collective.collectives import longer_wait
from parsim.cost.collective.group_bandwidth import GLOO
from parsim.cost.collective.kinds import Algorithm
from parsim.cost.collective.nccl import Protocol
from parsim.sim.benchmark.collective_sweep import Collective, Row, Sweep, Timings, benchmark_choice
from parsim.sim.benchmark.group_layout import GroupLayout
from parsim.sim.links.collective_flows import by_node, pattern, timed_flow, usage_of
from parsim.sim.links.collective_flows import together as carried_together
from parsim.sim.links.flows import Carried

NOTICED = 1.0 + 1e-6
"""Together over alone beyond which a group counts as slower: less is rounding."""


class Shared(NamedTuple):
    """The link of several groups that was full longest, how many cross it, and those seconds."""

    name: str
    link_class: str
    groups: int
    saturated: float


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
            "link_saturated_s": shared and shared.saturated,
            "measured_alone_s": self.alone.measured,
            "measured_together_s": self.measured_together,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrent:
    """All rows of a sweep with its groups running at once."""

    layout: GroupLayout
    rows: tuple[ConcurrentRow, ...]

    def of(self, kind: Collective) -> tuple[ConcurrentRow, ...]:
        """Rows of one kind."""
        return tuple(row for row in self.rows if row.alone.collective == kind)

    def beside(self, measured: Timings) -> Concurrent:
        """These rows with the seconds that all groups took at once when they were measured."""
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
    swept: Sweep, *, algorithm: Algorithm | None = None, protocol: Protocol | None = None
) -> Concurrent:
    """What the rows of a sweep take where all groups of its layout start them at once.

    Fluids that share links max-min fairly (`parsim/sim/links/collective_flows.py`), latency
    spent once; the slowest group counts. Where processors share a core, its calls wait as well:
    groups on a core times the seconds alone.

    Source: max-min fair sharing of the rates that the system file says are reached.
    Leaves out: contention of small messages, switches that reduce for several groups at once.
    """
    layout = swept.layout
    graph = build_graph(layout.cluster)
    rows: list[ConcurrentRow] = []
    for kind in swept.kinds:
        least = benchmark_choice(layout, kind, 1.0, algorithm, protocol).seconds
        uses: dict[Algorithm, tuple[_LinkUse, ...]] = {}
        for row in swept.of(kind):
            if row.algorithm not in uses:
                uses[row.algorithm] = _link_uses(layout, graph, kind, row.algorithm)
            waits = least + _longer(layout, row)
            rows.append(_together(layout, graph, row, uses[row.algorithm], waits))
    return Concurrent(layout=layout, rows=tuple(rows))


def _longer(layout: GroupLayout, row: Row) -> float:
    """By how much a row's latency exceeds that of one byte, seconds."""
    if row.collective == "send_recv":
        return 0.0
    return float(longer_wait(layout.system, row.collective, row.size, layout.alone)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinkUse:
    """Unit edges of one group's collective on each link, and a unit's share of S."""

    used: dict[int, float]
    share: float


def _link_uses(
    layout: GroupLayout, graph: Graph, kind: Collective, algorithm: Algorithm
) -> tuple[_LinkUse, ...]:
    return tuple(_link_use(layout, graph, kind, algorithm, group) for group in layout.groups)


def _link_use(
    layout: GroupLayout, graph: Graph, kind: Collective, algorithm: Algorithm, group: Sequence[int]
) -> _LinkUse:
    """What one group uses; in send/recv each rank sends to the next one, as in nccl-tests."""
    if kind == "send_recv":
        shift = [(a, b, 1.0) for a, b in pairwise([*group, group[0]])]
        return _LinkUse(used=usage_of(graph, shift), share=1.0)
    nodes = by_node(group, layout.system.devices_per_node)
    sent = pattern(kind, algorithm, nodes)
    return _LinkUse(used=usage_of(graph, sent.edges), share=sent.share)


def _together(
    layout: GroupLayout, graph: Graph, row: Row, uses: Sequence[_LinkUse], least: float
) -> ConcurrentRow:
    carried = carried_together(
        [timed_flow(graph, use.used, use.share * row.size, row.seconds, least) for use in uses],
        graph,
    )
    slowest = int(np.argmax(carried.end))
    seconds = max(float(carried.end[slowest]), row.seconds)
    if layout.system.library == GLOO:
        seconds = max(seconds, row.seconds * layout.per_device)
    if seconds <= row.seconds * NOTICED:
        seconds = row.seconds
    shared = _fullest(graph, uses, slowest, carried)
    return ConcurrentRow(alone=row, together=seconds, shared=shared)


def _fullest(
    graph: Graph, uses: Sequence[_LinkUse], slowest: int, carried: Carried
) -> Shared | None:
    """The link on the slowest group's way, shared with others, that was full longest."""
    groups = {link: sum(link in use.used for use in uses) for link in uses[slowest].used}
    several = [link for link, count in groups.items() if count > 1]
    if not several:
        return None
    link = max(several, key=lambda link: (carried.saturated[link], groups[link], -link))
    full = float(carried.saturated[link])
    return Shared(graph.names[link], graph.link_class[link], groups[link], full)
