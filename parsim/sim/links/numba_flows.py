"""The simulation of flows as numba loops, for the extra `fast`; bit-equal to numpy's.

Kept apart because importing numba costs most of a second. No fastmath, and sums in the order in
which numpy takes them, so that the results are the same to the last bit.
"""

from __future__ import annotations

import numba
import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.sim.links.fair_share import ENDED, TIGHT
from parsim.sim.links.numba_fair_share import add_loads, fill_waiting, is_fair


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def carry(  # noqa: PLR0913  numba compiles the whole event loop as one
    bounds: Index,
    links: Index,
    weight: Array,
    limit: Array,
    capacity: Array,
    size: Array,
    delay: Array,
    latency: Array,
    after: Index,
) -> tuple[Array, Array, Array, Array, Array, int]:
    """What `flows.carry_by_numpy` does; the last result is minus the number of an unfair solve."""
    count = len(size)
    start, begin = np.full(count, np.inf), np.full(count, np.inf)
    end, left, rates = np.full(count, np.inf), size.copy(), np.zeros(count)
    busy, saturated = np.zeros(len(capacity)), np.zeros(len(capacity))
    load, loads = np.zeros(len(capacity)), np.zeros(len(capacity))
    active, alive = np.empty(count, dtype=np.int64), 0
    is_active, queue = np.zeros(count, dtype=np.bool_), np.empty(count, dtype=np.int64)
    for flow in range(count):
        if after[flow] < 0:
            start[flow] = delay[flow]
            begin[flow] = start[flow] + latency[flow]
    now, solves = 0.0, 0
    while True:
        begins = begin.min() if count else np.inf
        if alive == 0:
            if begins == np.inf:
                return start, end, busy, saturated, load, solves
            now = begins
        else:
            crossing = line_up(active, alive, bounds, limit, rates, queue)
            fill_waiting(queue, crossing, bounds, links, weight, limit, capacity, rates)
            solves += 1
            add_loads(active, alive, bounds, links, weight, rates, loads)
            if not is_fair(active, alive, bounds, links, limit, capacity, rates, loads):
                return start, end, busy, saturated, load, -solves
            needed = first_end(active, alive, left, rates)
            until = now + needed
            passed = min(needed, begins - now)
            now = min(until, begins)
            account(loads, capacity, passed, busy, saturated, load)
            under_way = move(active, alive, rates, passed, now, size, left, end, is_active)
            if under_way < alive:
                alive = under_way
                wake(start, begin, end, now, delay, latency, after)
        alive = admit(begin, now, is_active, active, alive)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def first_end(active: Index, alive: int, left: Array, rates: Array) -> float:
    """Seconds until the first of the active flows ends."""
    needed = np.inf
    for i in range(alive):
        needed = min(needed, left[active[i]] / rates[active[i]])
    return needed


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def line_up(
    active: Index, alive: int, bounds: Index, limit: Array, rates: Array, queue: Index
) -> int:
    """Queue the active flows that cross links and count them; the others take their limit."""
    crossing = 0
    for i in range(alive):
        flow = active[i]
        rates[flow] = limit[flow]
        if bounds[flow] < bounds[flow + 1]:
            queue[crossing] = flow
            crossing += 1
    return crossing


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def move(  # noqa: PLR0913  numba takes arrays one by one
    active: Index,
    alive: int,
    rates: Array,
    passed: float,
    now: float,
    size: Array,
    left: Array,
    end: Array,
    is_active: Flags,
) -> int:
    """Carry the active flows for a while, end those that have arrived, and count the others."""
    under_way = 0
    for i in range(alive):
        flow = active[i]
        left[flow] -= rates[flow] * passed
        if left[flow] <= size[flow] * ENDED:
            is_active[flow] = False
            end[flow] = now
        else:
            active[under_way] = flow
            under_way += 1
    return under_way


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def wake(
    start: Array, begin: Array, end: Array, now: float, delay: Array, latency: Array, after: Index
) -> None:
    """Flows whose predecessor has just ended get their start."""
    for flow in range(len(start)):
        if after[flow] >= 0 and start[flow] == np.inf and end[after[flow]] == now:
            start[flow] = now + delay[flow]
            begin[flow] = start[flow] + latency[flow]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def admit(begin: Array, now: float, is_active: Flags, active: Index, alive: int) -> int:
    """Flows that begin by now become active; `active` stays in the order of their numbers."""
    came = False
    for flow in range(len(begin)):
        if begin[flow] <= now:
            begin[flow] = np.inf
            is_active[flow] = came = True
    if came:
        alive = 0
        for flow in range(len(begin)):
            if is_active[flow]:
                active[alive] = flow
                alive += 1
    return alive


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def account(
    loads: Array, capacity: Array, passed: float, busy: Array, saturated: Array, load: Array
) -> None:
    """Add a stretch of time to the account of each link."""
    for link in range(len(loads)):
        if loads[link] > 0.0:
            busy[link] += passed
            if loads[link] >= capacity[link] * (1.0 - TIGHT):
                saturated[link] += passed
            load[link] += loads[link] * passed
