"""Bounds of many plans: each distinct part of their costs is priced once, then put together.

Where a plan asks for the fewest recomputed layers that fit, its bounds are of so many that its
bytes may have room: no plan with fewer has, and none with more is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index, Ints
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.plan.space import FEWEST
from parsim.planner.bounds.cases import layer_cases, price_layers
from parsim.planner.bounds.closed_forms import Seconds
from parsim.planner.bounds.parts import KnownCuts
from parsim.planner.bounds.priced import Priced

CHORDS = 4
"""Rounds after which the interval is halved instead."""


def fewest_layers(priced: Priced, peak: Array, room: Array) -> Ints:
    """The fewest recomputed layers above none with which plans may have room; 0 where none does.

        bytes |  *
              |     *      chord              each layer more frees the same on a rank, so that
        room  |-----+--*- - - - - - - - - -   the bytes of the fullest rank are convex: a chord
              |            *       *      *   lies above them, and where it meets the room they
              +----+---+---+---+---+---+--+   have room, too
                                     layers

    What the bytes do beyond that (a layer that is made again) is left out, so that they never rise.

    One number (B,) for all stages of a plan. `peak` (B,) are bytes without any, which are above the
    `room`. At most all layers but one of the largest stage are recomputed: all are another plan.
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


class PlanBounds(NamedTuple):
    """Least seconds of a step and of its parts, least bytes of its fullest rank, (B,) each.

    `repeated` (B,) are the recomputed layers of each stage that they are of.
    """

    seconds: Seconds
    peak: Array
    repeated: Ints

    @property
    def step(self) -> Array:
        """Least seconds of a step, (B,)."""
        return self.seconds.step


class Room(NamedTuple):
    """Bytes that plans may need to fit, (B,) each: as they are, and with some layers recomputed.

    Plans that need more than `most` are of no use, not even as tight ones.
    """

    plain: Array
    repeating: Array
    most: float = np.inf


def plan_bounds(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    layer_row: Index,
    room: Room | None = None,
    known: KnownCuts | None = None,
) -> PlanBounds:
    """Bounds of the plans of a table; `layer_row` (B,) are their rows in `layers`.

    Those of one row have equal degrees and equally many micro-batches of one size. Without `room`
    plans that ask for the fewest recomputed layers have none; plans that need more bytes than any
    may have are not looked at further, and their steps are infinite. Cuts of the job's model that
    are `known` are not worked out again.
    """
    bounds = PlanBounds(
        seconds=Seconds.unknown(len(table)),
        peak=np.zeros(len(table)),
        repeated=np.maximum(table.recompute_layers, 0),
    )
    asks = table.recompute_layers == FEWEST
    table = replace(table, recompute_layers=bounds.repeated.copy())
    for rows, priced in _pieces(job, table, layers, layer_row, known):
        _bound(bounds, rows, priced, asks[rows], room)
    return bounds


def least_steps(
    job: Job, table: PlanTable, known: KnownCuts | None = None, usable: float = np.inf
) -> Array:
    """Least seconds of the steps of plans, (B,); infinite where no plan of their family fits.

    Because the bytes that stay for the whole run, which no saving changes, are more than `usable`.
    """
    cases = layer_cases(job, table)
    layers = price_layers(job, table.take(cases.first))
    table = replace(table, recompute_layers=np.maximum(table.recompute_layers, 0))
    steps = np.full(len(table), np.inf)
    for rows, priced in _pieces(job, table, layers, cases.of, known):
        fitting = np.flatnonzero(priced.standing_bytes() <= usable)
        if len(fitting):
            steps[rows[fitting]] = priced.take(fitting).steps().step
    return steps


def least_peaks(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    layer_row: Index,
    known: KnownCuts | None = None,
) -> Array:
    """Least bytes of the fullest rank of plans, (B,); arguments as of `plan_bounds`.

    Those that ask for the fewest recomputed layers have none.
    """
    table = replace(table, recompute_layers=np.maximum(table.recompute_layers, 0))
    peaks = np.empty(len(table))
    for rows, priced in _pieces(job, table, layers, layer_row, known):
        peaks[rows] = priced.peaks()
    return peaks


def _pieces(
    job: Job, table: PlanTable, layers: LayerTable, layer_row: Index, known: KnownCuts | None
) -> Iterator[tuple[Index, Priced]]:
    """Yield the rows of each setting, without a pipeline and with one, and their priced parts."""
    known = {} if known is None else known
    for alike, several in product(table.by_setting(), (False, True)):
        rows = alike[(table.pp[alike] > 1) == several]
        if len(rows):
            piece = _piece(rows)
            yield rows, Priced.of(job, table.take(piece), layers, layer_row[piece], known)


def _bound(bounds: PlanBounds, rows: Index, priced: Priced, asks: Flags, room: Room | None) -> None:
    """Note the bytes of some plans, with the layers that they need, and the steps of the useful."""
    bounds.peak[rows] = peak = priced.peaks()
    plain = np.ones(len(rows), dtype=bool)
    if room is not None:
        plain = peak <= room.most
        short = np.flatnonzero(asks & (peak > room.plain[rows]))
        if len(short):
            plain[_repeat(bounds, rows, priced, short, room)] = False
    if plain.any():
        useful = np.flatnonzero(plain)
        _note(bounds.seconds, rows[useful], priced.take(useful))


def _repeat(bounds: PlanBounds, rows: Index, priced: Priced, short: Index, room: Room) -> Index:
    """Note bytes and seconds of plans that have room with some layers recomputed; which these are.

    Of those that are `short` of room without.
    """
    may_need = room.repeating[rows[short]]
    fewest = fewest_layers(priced.take(short), bounds.peak[rows[short]], may_need)
    short, fewest = short[fewest > 0], fewest[fewest > 0]
    if len(short):
        repeating = priced.take(short).repeating(fewest)
        bounds.repeated[rows[short]] = fewest
        bounds.peak[rows[short]] = repeating.peaks()
        _note(bounds.seconds, rows[short], repeating)
    return short


def _piece(rows: Index) -> Index | slice:
    """Rising rows, as a slice where they lie in one piece: its columns need no copy."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def _note(seconds: Seconds, rows: Index, priced: Priced) -> None:
    """Write the seconds of some plans into their columns."""
    for column, values in zip(seconds, priced.steps(), strict=True):
        column[rows] = values
