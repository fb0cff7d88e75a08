"""The recurrence of `maxplus` as a numba loop, for the extra `fast`; bit-equal to the numpy one.

Kept apart because importing numba costs most of a second: `maxplus` asks for it only where a
block is large enough to repay that.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def sweep(
    rank: Index, source: Index, kind: Index, duration: Array, hop: Array, clock: Array, finish: Array,
    arrival: Array,
) -> None:  # fmt: skip
    """Fill clock (p, B), finish (A, B) and arrival (A + 1, B, row 0 zeros), action by action."""
    plans = finish.shape[1]
    for i in range(len(rank)):
        who, what, made = rank[i], kind[i], source[i]
        for b in range(plans):
            start = max(clock[who, b], arrival[made, b])
            end = start + duration[what, b]
            clock[who, b] = end
            finish[i, b] = end
            arrival[i + 1, b] = end + hop[what, b]
