"""Bounds of many plans: each distinct part of their costs is priced once, then put together.

Where a plan asks for the fewest recomputed layers that fit, its bounds are of so many that its
bytes may have room: no plan with fewer has, and none with more is faster.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index, Ints
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.plan.space import FEWEST
from parsim.planner.bounds.closed_forms import Seconds
from parsim.planner.bounds.fewest_layers import fewest_layers
from parsim.planner.bounds.parts import KnownCuts
from parsim.planner.bounds.priced import Priced


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
    """Bytes that plans may need to fit, (B,) each: as they are, and with some layers recomputed."""

    plain: Array
    repeating: Array


def plan_bounds(
    job: Job, table: PlanTable, layers: LayerTable, layer_row: Index, room: Room | None = None
) -> PlanBounds:
    """Bounds of the plans of a table; `layer_row` (B,) are their rows in `layers`.

    Without `room` plans that ask for the fewest recomputed layers have none.
    """
    seconds = Seconds(*np.zeros((4, len(table))))
    peak = np.zeros(len(table))
    repeated = np.maximum(table.recompute_layers, 0)
    asks = table.recompute_layers == FEWEST
    table = replace(table, recompute_layers=repeated.copy())
    known: KnownCuts = {}
    for alike, several in product(table.by_setting(), (False, True)):
        rows = alike[(table.pp[alike] > 1) == several]
        if not len(rows):
            continue
        piece = _piece(rows)
        priced = Priced.of(job, table.take(piece), layers, layer_row[piece], known)
        peak[rows] = _noted(seconds, rows, priced)
        if room is None:
            continue
        short = np.flatnonzero(asks[rows] & (peak[rows] > room.plain[rows]))
        if not len(short):
            continue
        fewest = fewest_layers(priced.take(short), peak[rows[short]], room.repeating[rows[short]])
        short, fewest = short[fewest > 0], fewest[fewest > 0]
        if len(short):
            some = rows[short]
            repeated[some] = fewest
            peak[some] = _noted(seconds, some, priced.take(short).repeating(fewest))
    return PlanBounds(seconds, peak, repeated)


def _piece(rows: Index) -> Index | slice:
    """Rising rows, as a slice where they lie in one piece: its columns need no copy."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def _noted(seconds: Seconds, rows: Index, priced: Priced) -> Array:
    """The bytes of some plans, whose seconds are written into their columns."""
    bounds, peak = priced.bounds()
    for column, values in zip(seconds, bounds, strict=True):
        column[rows] = values
    return peak
