"""The recurrence of `maxplus` as a numba loop, for the extra `fast`; bit-equal to numpy's.

Kept apart because importing numba costs most of a second: `maxplus` asks for it only where a
table is large enough to repay that. No fastmath, so that the order of operations is kept.
"""

from __future__ import annotations

import numba

from parsim.arrays import Array, Index


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def sweep(
    before: Index,
    source: Index,
    what: Index,
    sender: Index,
    duration: Array,
    hop: Array,
    finish: Array,
) -> None:
    """Fill finish (A + 1, B), whose row 0 is zeros, action by action.

    `before` and `source` are rows of `finish`, `what` and `sender` classes of `duration` and `hop`.
    """
    plans = finish.shape[1]
    for i in range(len(before)):
        for b in range(plans):
            start = finish[before[i], b]
            arrival = finish[source[i], b] + hop[sender[i], b]
            finish[i + 1, b] = max(start, arrival) + duration[what[i], b]
