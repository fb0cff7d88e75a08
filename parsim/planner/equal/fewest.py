"""Plans of a search that recompute as few layers as they fit with: how many each one has.

    bounds   k layers, so that no plan with fewer fits
    exactly  k layers or more, until the plan fits; where all but one do not suffice, none

Recomputing one layer more is never faster, so that the first number that fits is the best.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from parsim.arrays import Array, Flags, Index, Ints
from parsim.cost.job import Job
from parsim.plan import PlanTable
from parsim.plan.space import FEWEST
from parsim.planner.bounds import Room
from parsim.planner.equal.exact import ExactShape
from parsim.planner.equal.known import Known
from parsim.sim.confidence.memory_fit import highest_with_room, margin_shares


@dataclass(slots=True, kw_only=True)
class Fewest:
    """The plans of a table that ask for the fewest recomputed layers, and what these may need.

    `open` (B,) says that a plan may still get more; `most` (B,) are all layers but one of its
    largest stage, `repeated` (B,) those that it has now. `plain` and `repeating` (B,) are the
    shares of memory that it must leave free without and with such layers, `room` the bytes that it
    may need then.
    """

    open: Flags
    most: Ints
    plain: Array
    repeating: Array
    room: Room
    repeated: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        job: Job,
        table: PlanTable,
        alike: tuple[PlanTable, Index],
        usable: float,
        stated: float | None,
    ) -> Fewest:
        """Look up the plans of a table.

        `alike` are one plan each of those that margins do not tell apart, and which of them each
        plan of the table is; `stated` is the margin of all where one is stated.
        """
        plans, plan_of = alike
        shares = [_margins(job, plans, some, stated) for some in (0, 1)]
        rooms = [highest_with_room(job.software, usable, share) for share in shares]
        plain, repeating = (share[plan_of] for share in shares)
        return cls(
            open=table.recompute_layers == FEWEST,
            most=_all_but_one(job, table),
            plain=plain,
            repeating=repeating,
            room=Room(rooms[0][plan_of], rooms[1][plan_of], usable),
        )

    def appended(self, other: Fewest) -> Fewest:
        """These plans and others of the same search behind them."""
        names = [f.name for f in fields(Fewest) if f.name != "room"]
        columns = {name: np.append(getattr(self, name), getattr(other, name)) for name in names}
        plain = np.append(self.room.plain, other.room.plain)
        repeating = np.append(self.room.repeating, other.room.repeating)
        return Fewest(**columns, room=Room(plain, repeating, self.room.most))

    def margins(self, rows: Index) -> Array:
        """The shares of memory that some plans must leave free with the layers that they have."""
        return np.where(self.repeated[rows] > 0, self.repeating[rows], self.plain[rows])

    def begin(self, known: Known) -> None:
        """Take what bounds say: plans have room with so many layers, or with no number of them."""
        raised = self.open & (self.repeated > 0)
        known.roomy[raised], known.too_large[raised] = True, False
        self.open &= known.roomy

    def settled(self, rows: Index, shape: ExactShape) -> Array:
        """Exact bytes of plans of one shape, those that are open with the fewest layers that fit.

        Numbers with which a plan is sure to be too large are passed over: a layer frees its bytes
        of each micro-batch in flight and no more.
        """
        peak = shape.peaks()
        if not self.open[rows].any():
            return peak
        each, once = shape.freed()
        while len(short := np.flatnonzero(self._is_short(rows, peak))):
            some = rows[short]
            lacking = peak[short] - self.room.repeating[some] - once[short]
            more = np.ceil(lacking / np.maximum(each[short], 1.0)).astype(np.int64)
            self.repeated[some] += np.maximum(more, 1)
            given_up = some[self.repeated[some] > self.most[some]]
            self.repeated[given_up], self.open[given_up] = 0, False
            shape.recomputing(self.repeated[rows])
            peak[short] = shape.peaks(short)
        return peak

    def _is_short(self, rows: Index, peak: Array) -> Flags:
        """Which of some plans have no room and may get more layers."""
        again = self.repeated[rows] > 0
        room = np.where(again, self.room.repeating[rows], self.room.plain[rows])
        return np.asarray(self.open[rows] & (peak > room))


def _margins(job: Job, plans: PlanTable, some: int, stated: float | None) -> Array:
    """Margins of plans where those that ask for the fewest have `some` recomputed layers, (B,)."""
    layers = np.where(plans.recompute_layers == FEWEST, some, plans.recompute_layers)
    return margin_shares(job, replace(plans, recompute_layers=layers), stated)


def _all_but_one(job: Job, table: PlanTable) -> Ints:
    """All layers but one of each plan's largest stage, (B,)."""
    even = -(-job.model.num_layers // (table.pp * table.v))
    stated = [max(plan.stage_layers or (0,)) for plan in table.settings]
    largest = np.array(stated)[table.setting]
    return np.asarray(np.where(largest > 0, largest, even) - 1)
