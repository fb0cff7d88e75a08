"""Micro-batches that the ranks which stand for a plan's hold at least at some moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Columns, Flags, Ints
from parsim.plan import PlanTable
from parsim.plan.schedule_names import BALANCED
from parsim.schedule.inflight import FOLDED, TWO_WAY, WARM, least_in_flight

HOLD_ALL = ("gpipe", "looped_bfs")
"""Schedules whose ranks run every forward before any gradient."""

CHUNKS = frozenset({"interleaved_1f1b", *FOLDED, *TWO_WAY})
"""Schedules of several stages a rank whose ranks are known to hold more than one of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flights(Columns):
    """Micro-batches in flight on Q ranks of C plans, (Q, C) each.

    `every` of all that a rank keeps; where `by_chunk` (C,) more is known: `first` and `last` of its
    first and last chunk, `total` of all of them together.
    """

    every: Ints
    first: Ints
    last: Ints
    total: Ints
    by_chunk: Flags

    @classmethod
    def of(cls, table: PlanTable, early: Ints) -> Flights:
        """Count them; `early` (Q, C) are the first ranks that hold the same as those counted."""
        every, nothing = np.ones_like(early), np.zeros_like(early)
        flights = cls(
            every=every,
            first=nothing,
            last=nothing.copy(),
            total=nothing.copy(),
            by_chunk=np.zeros(early.shape[-1], dtype=bool),
        )
        if table.common.actions is None:
            for number, name in enumerate(table.schedules):
                rows = np.flatnonzero((table.schedule == number) & (table.pp > 1))
                if len(rows):
                    flights._count(name, table.take(rows), early.take(rows, axis=-1), rows)
        return flights

    def _count(self, name: str, table: PlanTable, early: Ints, rows: Ints) -> None:
        """Note what some plans, all of one schedule, hold."""
        count = table.num_microbatches
        if name in CHUNKS:
            flying = least_in_flight(name, table.pp, table.v, early, count)
            self.by_chunk[rows] = True
            self.first[:, rows], self.last[:, rows], self.total[:, rows] = flying
        elif name in WARM | BALANCED:
            self.every[:, rows] = least_in_flight(name, table.pp, table.v, early, count).total
        elif name in HOLD_ALL:
            self.every[:, rows] = count
