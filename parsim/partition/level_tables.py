"""The tables of one level of a hierarchy: the best parts of the states on each number of its units.

    A(i, j, m)   seconds of states i..j on m units, by the slowest of the stages in them

    one stage    (C + 4 (m - 1) W / (m B) / g) / m
    split at k   max(A(i, k, m - m'), (C' + 4 (m' - 1) W' / (m' B)) / m', transfers)

`parsim/partition/hierarchy.py` has the source, what the letters are, and what this leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index
from parsim.partition.levels import Level, Options
from parsim.partition.states import States


@dataclass(frozen=True, slots=True)
class LevelTables:
    """What is known of one level, by the number m of its `count` units.

    `seconds` (n, n) are those of states i..j; `split` (n, n) is the state behind which their last
    stage begins (-1: they are one stage), and `units` (n, n) on how many units that is.
    """

    seconds: dict[int, Array]
    split: dict[int, Index]
    units: dict[int, Index]
    count: int


class LevelWork(NamedTuple):
    """What the tables of a level are made of: costs between states, (n, n).

    `compute` are seconds, `weights` and `kept` bytes. `inside` are the devices in a unit of the
    level, `rows` the first states that tables are needed for.
    `innermost` says that the units are devices, and not groups that share a stage's weights.
    """

    compute: Array
    weights: Array
    kept: Array
    states: States
    level: Level
    inside: int
    options: Options
    rows: int
    innermost: bool


def solve_level(work: LevelWork) -> LevelTables:
    """Fill the tables of one level, unit by unit."""
    count, straight = work.level.units, work.options.straight
    size = (work.rows, len(work.states))
    solved = LevelTables({}, {}, {}, count)
    for m in range(1, count + 1):
        alone = _one_stage(work, m) if m == 1 or not straight else np.full(size, inf)
        solved.seconds[m] = alone
        solved.split[m], solved.units[m] = np.full(size, -1), np.full(size, m)
        for last in range(1, min(m, 2) if straight else m):
            _try_split(work, solved, m, last)
    return solved


def _one_stage(work: LevelWork, m: int) -> Array:
    """Seconds of each part as one stage on m units, (rows, n)."""
    compute, weights = work.compute[: work.rows], work.weights[: work.rows]
    seconds = _replicated(work, compute, weights, m, work.inside)
    return _within_memory(work, seconds, work.kept[: work.rows] + weights, m, m)


def _replicated(work: LevelWork, compute: Array, weights: Array, m: int, inside: int) -> Array:
    """Seconds of a stage on m units that exchange their weights' gradients."""
    sent = np.where(np.isfinite(weights), weights, 0.0) * (m - 1) / work.level.bandwidth
    if work.options.mode == "pipedream-paper":
        return np.asarray(np.maximum(compute, 2.0 * sent) / m)
    return np.asarray((compute + 4.0 * sent / m / inside) / m)


def _within_memory(work: LevelWork, seconds: Array, kept: Array, used: int, m: int) -> Array:
    """Inf where what a stage stashes for the units still free is more than a device holds.

    A device also holds a copy for the micro-batch at hand. Of groups of devices, which share one,
    the level within has seen to that.
    """
    if work.options.memory is None:
        return seconds
    at_hand = work.innermost and not work.options.stashed_alone
    copies = ceil((work.level.units - used) / m) + int(at_hand)
    stashed = np.where(np.isfinite(kept), kept, 0.0) * copies
    return np.where(stashed > work.options.memory, inf, seconds)


def _try_split(work: LevelWork, solved: LevelTables, m: int, last: int) -> None:
    """Improve parts on m units by a last stage on `last` of them, behind every state."""
    best, split, units = solved.seconds[m], solved.split[m], solved.units[m]
    count = len(work.states)
    stage = _replicated(work, work.compute[1:], work.weights[1:], last, 1)
    stage = _within_memory(work, stage, work.kept[1:] + work.weights[1:], m, last)
    stage = np.maximum(stage, _transfers(work, last)[:-1]) if work.options.transfers else stage
    first = solved.seconds[m - last][:, : count - 1]  # (rows, k); a cut behind state k >= row
    stage = np.ascontiguousarray(stage.T)  # (j, k): the least of a row is found in one pass
    for row in range(min(work.rows, count - 1)):
        slowest = np.maximum(first[row, row:], stage[row:, row:])
        at = slowest.argmin(axis=1)
        seconds = slowest[np.arange(count - row), at]
        better = np.flatnonzero(seconds < best[row, row:])
        best[row, row + better] = seconds[better]
        split[row, row + better], units[row, row + better] = row + at[better], last


def _transfers(work: LevelWork, last: int) -> Array:
    """Seconds of the messages in front of and behind a last stage, (k, j)."""
    lanes = 1 if work.options.mode == "pipedream-paper" else last
    rate = work.level.bandwidth * lanes * work.options.compression
    output = 2.0 * work.states.output / rate
    behind = np.concatenate([output[:-1], [0.0]])
    return np.asarray(np.maximum(output[:, None], behind[None, :]))
