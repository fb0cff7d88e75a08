"""Max-min fair rates as numba loops, for the extra `fast`; bit-equal to `fair_share`.

Kept apart because importing numba costs most of a second. No fastmath, and sums in the order in
which numpy takes them, so that the results are the same to the last bit.
"""

from __future__ import annotations

import numba
import numpy as np

from parsim.arrays import Array, Index
from parsim.sim.links.fair_share import OVERLOAD, TIGHT


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def fill_waiting(
    waiting: Index,
    count: int,
    bounds: Index,
    links: Index,
    weight: Array,
    limit: Array,
    capacity: Array,
    rates: Array,
) -> None:
    """Give the first `count` flows of `waiting` their rates, as `fair_share.fill` does.

    `waiting` is used up; `weight` is multiplicity x usage of each entry of `links`.
    """
    share, taken = np.zeros(len(capacity)), np.zeros(len(capacity))
    asked, least = np.empty(len(capacity)), np.empty(len(capacity))
    while count > 0:
        ask(waiting, count, bounds, links, weight, asked)
        for link in range(len(capacity)):
            if asked[link] > 0.0:
                share[link] = max((capacity[link] - taken[link]) / asked[link], share[link])
        raise_to_tightest(waiting, count, bounds, links, limit, share, rates, least)
        count = settle(waiting, count, bounds, links, weight, limit, share, least, rates, taken)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def ask(
    waiting: Index, count: int, bounds: Index, links: Index, weight: Array, asked: Array
) -> None:
    """What the waiting flows take of each link for each unit of their rates."""
    asked[:] = 0.0
    for i in range(count):
        flow = waiting[i]
        for entry in range(bounds[flow], bounds[flow + 1]):
            asked[links[entry]] += weight[entry]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def raise_to_tightest(
    waiting: Index,
    count: int,
    bounds: Index,
    links: Index,
    limit: Array,
    share: Array,
    rates: Array,
    least: Array,
) -> None:
    """Give the waiting flows their tightest link's share, and each link its lowest rate."""
    least[:] = np.inf
    for i in range(count):
        flow = waiting[i]
        tightest = limit[flow]
        for entry in range(bounds[flow], bounds[flow + 1]):
            tightest = min(tightest, share[links[entry]])
        rates[flow] = tightest
        for entry in range(bounds[flow], bounds[flow + 1]):
            least[links[entry]] = min(least[links[entry]], tightest)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def settle(  # noqa: PLR0913  numba takes arrays one by one
    waiting: Index,
    count: int,
    bounds: Index,
    links: Index,
    weight: Array,
    limit: Array,
    share: Array,
    least: Array,
    rates: Array,
    taken: Array,
) -> int:
    """Take off the links what flows at their final rate carry, and count those that still wait."""
    added, still = np.zeros(len(taken)), 0
    for i in range(count):
        flow = waiting[i]
        done = rates[flow] == limit[flow]
        for entry in range(bounds[flow], bounds[flow + 1]):
            done = done or share[links[entry]] == least[links[entry]]
        if done:
            for entry in range(bounds[flow], bounds[flow + 1]):
                added[links[entry]] += weight[entry] * rates[flow]
        else:
            waiting[still] = flow
            still += 1
    for link in range(len(taken)):
        taken[link] += added[link]
    return still


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def add_loads(
    active: Index,
    alive: int,
    bounds: Index,
    links: Index,
    weight: Array,
    rates: Array,
    loads: Array,
) -> None:
    """What the active flows carry over each link."""
    loads[:] = 0.0
    for i in range(alive):
        flow = active[i]
        for entry in range(bounds[flow], bounds[flow + 1]):
            loads[links[entry]] += weight[entry] * rates[flow]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def is_fair(
    active: Index,
    alive: int,
    bounds: Index,
    links: Index,
    limit: Array,
    capacity: Array,
    rates: Array,
    loads: Array,
) -> bool:
    """Whether the rates pass the certificate of `fair_share.certify`."""
    highest = np.zeros(len(capacity))
    for link in range(len(capacity)):
        if loads[link] > capacity[link] * (1.0 + OVERLOAD):
            return False
    for i in range(alive):
        flow = active[i]
        for entry in range(bounds[flow], bounds[flow + 1]):
            highest[links[entry]] = max(highest[links[entry]], rates[flow])
    for i in range(alive):
        flow = active[i]
        fair = rates[flow] >= limit[flow] * (1.0 - TIGHT)
        for entry in range(bounds[flow], bounds[flow + 1]):
            link = links[entry]
            full = loads[link] >= capacity[link] * (1.0 - TIGHT)
            fair = fair or (full and rates[flow] >= highest[link] * (1.0 - TIGHT))
        if not fair:
            return False
    return True
