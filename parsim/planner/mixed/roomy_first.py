"""Plans in an order in which one that fits comes soon, where an answer is wanted early.

The least bounds belong to plans that recompute and shard nothing, which rarely fit. To place one
takes some hundredths of a second; the least bytes of thousands are counted in as much:

    waves    by their bounds, a small one first and each time twice as many
    of each  plans that may have room, the fastest first
    then     all others, the roomiest first: an uneven cut may still make them fit
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.arrays import Index
from parsim.planner.mixed.candidates import Candidates

FIRST_WAVE = 1 << 12
"""Plans of the first wave."""


def roomy_first(work: Candidates, order: Index) -> Iterator[int]:
    """Rows of plans, which are in the order of their bounds, those that may have room first."""
    crowded, crowding = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for wave in _waves(order):
        share = work.crowding(wave)
        yield from wave[share <= 1.0].tolist()
        crowded.append(wave[share > 1.0])
        crowding.append(share[share > 1.0])
    rest = np.argsort(np.concatenate(crowding), kind="stable")
    yield from np.concatenate(crowded)[rest].tolist()


def _waves(order: Index) -> Iterator[Index]:
    """Rows in pieces of growing length."""
    done, wave = 0, FIRST_WAVE
    while done < len(order):
        yield order[done : done + wave]
        done, wave = done + wave, 2 * wave
