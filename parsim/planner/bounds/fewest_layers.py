"""The fewest recomputed layers of each stage with which plans may have room, by their bounds.

    bytes |  *                            each layer more frees the same on a rank, so that the
          |     *      chord              bytes of the fullest rank are convex: a chord lies above
    room  |-----+--*- - - - - - - - - -   them, and where it meets the room they have room, too
          |            *       *      *
          +----+---+---+---+---+---+--+   layers

What the bytes do beyond that (a layer that is made again) is left out, so that they never rise.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints
from parsim.planner.bounds.priced import Priced

CHORDS = 4
"""Rounds after which the interval is halved instead."""


def fewest_layers(priced: Priced, peak: Array, room: Array) -> Ints:
    """The fewest layers above none with which plans may have room, (B,); 0 where no number does.

    `peak` (B,) are their bytes without any, which have none. At most all layers but one of the
    largest stage are recomputed: all of them are another plan.
    """
    low, high = np.zeros(len(peak), dtype=np.int64), _most(priced)
    some = np.flatnonzero(high > 0)
    above, below = peak.copy(), peak.copy()
    if len(some):
        below[some] = priced.take(some).repeating(high[some]).peaks()
    fitting = below <= room
    rows, tries = np.flatnonzero(fitting & (high > 1)), 0
    while len(rows):
        tried = _next(low[rows], high[rows], above[rows], below[rows], room[rows], tries)
        bytes_then = priced.take(rows).repeating(tried).peaks()
        fits = bytes_then <= room[rows]
        high[rows[fits]], below[rows[fits]] = tried[fits], bytes_then[fits]
        low[rows[~fits]], above[rows[~fits]] = tried[~fits], bytes_then[~fits]
        rows, tries = rows[high[rows] - low[rows] > 1], tries + 1
    return np.where(fitting, high, 0)


def _next(low: Ints, high: Ints, above: Array, below: Array, room: Array, tries: int) -> Ints:
    """Which number to try between one that has no room and one that has."""
    if tries % 2:
        between = high - 1
    elif tries < CHORDS:
        share = (above - room) / np.maximum(above - below, 1.0)
        between = low + np.ceil(share * (high - low)).astype(np.int64)
    else:
        between = (low + high) // 2
    return np.clip(between, low + 1, high - 1)


def _most(priced: Priced) -> Ints:
    """All layers but one of each plan's largest stage, (B,)."""
    works = priced.works
    cut, stages = works.common.stage_layers, works.pp * works.v
    largest = max(cut) if cut else -(-priced.job.model.num_layers // stages)
    return np.asarray((largest - 1 + np.zeros_like(stages))[priced.work_of])
