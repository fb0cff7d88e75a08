"""What bounds know of schedules without their actions: kinds, and micro-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Columns, Flags, Index, Ints
from parsim.plan import PlanTable
from parsim.plan.names import BALANCED, FOLDED, SPLIT, V_SHAPED, WHOLE
from parsim.schedule import inflight

HOLD_ALL = ("gpipe", "looped_bfs")
"""Schedules whose ranks run every forward before any gradient."""

CHUNKS = frozenset({"interleaved_1f1b", *inflight.FOLDED, *inflight.TWO_WAY})
"""Schedules of several stages a rank whose ranks are known to hold more than one of each."""


class Kinds(NamedTuple):
    """A flag for each name of a table's schedules, of plans with one rank or all with several.

    A user's schedule is of no kind; without a pipeline it is 1F1B.
    """

    whole: Flags
    split: Flags
    naive: Flags
    folded: Flags
    completes_either: Flags

    @classmethod
    def of(cls, table: PlanTable) -> Kinds:
        """Sort the schedules of a table."""
        by_user, single = table.common.actions is not None, bool(table.pp[0] == 1)
        named = [
            (name in WHOLE, name in SPLIT, name == "naive", name in FOLDED, name in V_SHAPED)
            for name in table.schedules
        ]
        whole, split, naive, folded, either = np.array(named).T & (not by_user)
        split, naive, folded = (flags & (not single) for flags in (split, naive, folded))
        return cls(whole | single, split, naive, folded, either | by_user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Columns):
    """How B plans run: `count` (B,) micro-batches of each copy of the model, their schedule's kind.

    `replicated` says that gradients are whole on each replica: a ZeRO stage below 2.
    """

    count: Ints
    whole: Flags
    naive: Flags
    completes_either: Flags
    replicated: Flags

    @classmethod
    def of(cls, table: PlanTable, kinds: Kinds, both: Flags, rows: Index) -> Runs:
        """Some rows of a table; `both` (B,) says that a plan's pipeline runs both ways."""
        schedule, both = table.schedule[rows], both[rows]
        return cls(
            count=table.num_microbatches[rows] >> both,
            whole=kinds.whole[schedule],
            naive=kinds.naive[schedule],
            completes_either=kinds.completes_either[schedule] | both,
            replicated=table.zero_stage[rows] < 2,
        )


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
            flying = inflight.least_in_flight(name, table.pp, table.v, early, count)
            self.by_chunk[rows] = True
            self.first[:, rows], self.last[:, rows], self.total[:, rows] = flying
        elif name in inflight.WARM | BALANCED:
            self.every[:, rows] = inflight.least_in_flight(
                name, table.pp, table.v, early, count
            ).total
        elif name in HOLD_ALL:
            self.every[:, rows] = count
