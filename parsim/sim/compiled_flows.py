"""Fair shares and flow simulation as numba loops, for the extra `fast`; bit-equal to numpy's.

Kept apart because importing numba costs most of a second. No fastmath, and sums in the order in
which numpy takes them, so that the results are the same to the last bit.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def rates(bounds: Index, links: Index, weight: Array, limit: Array, capacity: Array) -> Array:
    """What `fair_share.fill` finds; `weight` is multiplicity x usage of each entry of `links`."""
    found = np.zeros(len(limit))
    waiting = np.empty(len(limit), dtype=np.int64)
    count = 0
    for flow in range(len(limit)):
        if bounds[flow] == bounds[flow + 1]:
            found[flow] = limit[flow]
        else:
            waiting[count] = flow
            count += 1
    fill_waiting(waiting, count, bounds, links, weight, limit, capacity, found)
    return found


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def fill_waiting(
    waiting: Index,
    count: int,
    bounds: Index,
    links: Index,
    weight: Array,
    limit: Array,
    capacity: Array,
    found: Array,
) -> None:
    """Give the first `count` flows of `waiting` their rates; `waiting` is used up."""
    share, taken = np.zeros(len(capacity)), np.zeros(len(capacity))
    asked, least = np.empty(len(capacity)), np.empty(len(capacity))
    added = np.empty(len(capacity))
    while count > 0:
        asked[:] = 0.0
        added[:] = 0.0
        least[:] = np.inf
        for i in range(count):
            flow = waiting[i]
            for entry in range(bounds[flow], bounds[flow + 1]):
                asked[links[entry]] += weight[entry]
        for link in range(len(capacity)):
            if asked[link] > 0.0:
                share[link] = max((capacity[link] - taken[link]) / asked[link], share[link])
        for i in range(count):
            flow = waiting[i]
            tightest = limit[flow]
            for entry in range(bounds[flow], bounds[flow + 1]):
                tightest = min(tightest, share[links[entry]])
            found[flow] = tightest
            for entry in range(bounds[flow], bounds[flow + 1]):
                least[links[entry]] = min(least[links[entry]], tightest)
        still = 0
        for i in range(count):
            flow = waiting[i]
            done = found[flow] == limit[flow]
            for entry in range(bounds[flow], bounds[flow + 1]):
                done = done or share[links[entry]] == least[links[entry]]
            if done:
                for entry in range(bounds[flow], bounds[flow + 1]):
                    added[links[entry]] += weight[entry] * found[flow]
            else:
                waiting[still] = flow
                still += 1
        for link in range(len(capacity)):
            taken[link] += added[link]
        count = still
