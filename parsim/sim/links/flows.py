"""Flows over time: each starts, takes its fair share of its links, and ends; nothing in between.

    f0  |── 10 ──|──── 5 ────|── 10 ──|       rates of two flows on one link of 10
    f1           |──── 5 ────|                events: start, start, end, end

Cut-through: a flow's latency is spent once, before its first byte, and its bytes are on all links
of its way at once. Rates change only when a flow starts or ends, so a result does not depend on
packets, chunks or time steps; there are none. Flows that end together end in one event.

A collective is one flow here (`parsim/sim/links/collective_flows.py`), its `usage` of a link the
number of its edges there. So whole collectives share links, and a ring is as fast as its slowest
edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.errors import InputError
from parsim.sim.links.fair_share import (
    ENDED,
    TIGHT,
    CertificateError,
    Flows,
    certify,
    fill,
    link_loads,
)

COMPILED_FROM = 20_000
"""Least flows x links of their ways for which numba, where installed, repays its import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Flows with their sizes and times; columns of (F,).

    Flow f starts `delay` seconds after flow `after` has ended, or after 0 where `after` is -1, and
    its `size` (bytes; at usage 1, what each link carries) flows from `latency` later.
    """

    flows: Flows
    size: Array
    delay: Array
    latency: Array
    after: Index

    @classmethod
    def of(
        cls,
        flows: Flows,
        size: Array,
        *,
        delay: Array | None = None,
        latency: Array | None = None,
        after: Index | None = None,
    ) -> Traffic:
        """Traffic that starts at 0 without latency unless told otherwise.

        Raises:
            InputError: a size that is not positive, a negative time, a flow that waits for itself.
        """
        count = len(flows.limit)
        traffic = cls(
            flows=flows,
            size=np.asarray(size, dtype=np.float64),
            delay=np.zeros(count) if delay is None else np.asarray(delay, dtype=np.float64),
            latency=np.zeros(count) if latency is None else np.asarray(latency, dtype=np.float64),
            after=np.full(count, -1) if after is None else np.asarray(after, dtype=np.int64),
        )
        traffic.check()
        return traffic

    def check(self) -> None:
        """Refuse what cannot run to its end.

        Raises:
            InputError: naming the first wrong value.
        """
        count = len(self.flows.limit)
        for name in ("size", "delay", "latency", "after"):
            values = getattr(self, name)
            if values.shape != (count,):
                raise InputError(f"{len(values)} values of {name} for {count} flows")
        for name, values, least in (
            ("size", self.size, np.nextafter(0, 1)),
            ("delay", self.delay, 0.0),
            ("latency", self.latency, 0.0),
        ):
            wrong = np.flatnonzero(~((values >= least) & np.isfinite(values)))
            if len(wrong):
                raise InputError(f"{name} of flow {wrong[0]} is {values[wrong[0]]}")
        if (self.after >= np.arange(count)).any() or (self.after < -1).any():
            raise InputError("a flow waits for one that does not come before it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What happened to the flows and on the links.

    `start` and `end` of each flow (F,); of each link (L,) the seconds in which it carried anything
    (`busy`) or all it can (`saturated`), and its `load` in bytes. `solves` counts how often rates
    were found.
    """

    start: Array
    end: Array
    busy: Array
    saturated: Array
    load: Array
    solves: int


def carry(traffic: Traffic) -> Carried:
    """Run all flows to their ends; every set of rates carries its certificate.

    Raises:
        CertificateError: rates that are not fair (a bug of parsim).
    """
    work = len(traffic.size) * len(traffic.flows.links)
    loops = _compiled() if work >= COMPILED_FROM else None
    return carry_by_numpy(traffic) if loops is None else carry_compiled(traffic, loops)


@cache
def _compiled() -> ModuleType | None:
    """The numba loops, where the extra `fast` is installed."""
    if find_spec("numba") is None:
        return None
    from parsim.sim.links import numba_flows

    return numba_flows


def carry_compiled(traffic: Traffic, loops: ModuleType) -> Carried:
    """The whole simulation in one compiled loop."""
    flows = traffic.flows
    start, end, busy, saturated, load, solves = loops.carry(
        flows.bounds,
        flows.links,
        flows.weight,
        flows.limit,
        flows.capacity,
        traffic.size,
        traffic.delay,
        traffic.latency,
        traffic.after,
    )
    if solves < 0:
        raise CertificateError(f"rates of solve {-solves} are not fair")
    return Carried(
        start=start, end=end, busy=busy, saturated=saturated, load=load, solves=int(solves)
    )


def carry_by_numpy(traffic: Traffic) -> Carried:
    """Run the flows event by event, rates by numpy."""
    run = _Run(traffic)
    while run.step():
        pass
    return Carried(
        start=run.start,
        end=run.end,
        busy=run.busy,
        saturated=run.saturated,
        load=run.load,
        solves=run.solves,
    )


class _Run:
    """The state of a simulation: when flows begin, what each has left, and the links' account."""

    def __init__(self, traffic: Traffic) -> None:
        count, links = len(traffic.size), len(traffic.flows.capacity)
        self.traffic = traffic
        self.now = 0.0
        self.left = traffic.size.copy()
        self.active: Flags = np.zeros(count, dtype=bool)
        self.start = np.where(traffic.after < 0, traffic.delay, np.inf)
        self.begin = self.start + traffic.latency
        self.end = np.full(count, np.inf)
        self.busy, self.saturated, self.load = np.zeros(links), np.zeros(links), np.zeros(links)
        self.solves = 0

    def step(self) -> bool:
        """Go on to the next start or end; False where nothing is left to do."""
        begins = float(self.begin.min(initial=np.inf))
        flowing = np.flatnonzero(self.active)
        if not len(flowing):
            if np.isinf(begins):
                return False
            self.now = begins
        else:
            self._flow(flowing, begins)
        starting = self.begin <= self.now
        self.active |= starting
        self.begin[starting] = np.inf
        return True

    def _flow(self, flowing: Index, begins: float) -> None:
        """Move bytes at fair rates until the first end, or until the next flow begins."""
        part = self.traffic.flows.take(flowing)
        rates = fill(part)
        certify(part, rates)
        self.solves += 1
        needed = float((self.left[flowing] / rates).min())
        until = self.now + needed
        passed = min(needed, begins - self.now)
        self.now = min(until, begins)
        self._account(part, rates, passed)
        self.left[flowing] -= rates * passed
        ended = flowing[self.left[flowing] <= self.traffic.size[flowing] * ENDED]
        if len(ended):
            self._finish(ended)

    def _account(self, part: Flows, rates: Array, passed: float) -> None:
        loads = link_loads(part, rates)
        self.busy[loads > 0] += passed
        self.saturated[loads >= part.capacity * (1.0 - TIGHT)] += passed
        self.load += loads * passed

    def _finish(self, ended: Index) -> None:
        """Flows that waited for the ended ones get their start."""
        self.active[ended] = False
        self.end[ended] = self.now
        after = self.traffic.after
        woken = np.flatnonzero((after >= 0) & np.isinf(self.start))
        woken = woken[np.isin(after[woken], ended)]
        self.start[woken] = self.now + self.traffic.delay[woken]
        self.begin[woken] = self.start[woken] + self.traffic.latency[woken]
