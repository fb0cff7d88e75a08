"""Plans of a search that recompute as few layers as they fit with: how many each one has.

    bounds   k layers, so that no plan with fewer fits
    exactly  k, or k + 1, ... layers until the plan fits; where all but one do not suffice, none

Recomputing one layer more is never faster, so that the first number that fits is the best.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from parsim.arrays import Array, Flags, Index, Ints
from parsim.cost.job import Job
from parsim.plan import PlanTable
from parsim.plan.space import FEWEST
from parsim.planner.bounds import Room
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
        plain, repeating = (_margins(job, alike, some, stated) for some in (0, 1))
        return cls(
            open=table.recompute_layers == FEWEST,
            most=_all_but_one(job, table),
            plain=plain,
            repeating=repeating,
            room=Room(
                highest_with_room(job.software, usable, plain),
                highest_with_room(job.software, usable, repeating),
            ),
        )

    def margins(self, repeated: Ints) -> Array:
        """The shares of memory that plans with so many recomputed layers must leave free, (B,)."""
        return np.where(repeated > 0, self.repeating, self.plain)

    def begin(self, known: Known, repeated: Ints) -> None:
        """Take what bounds say: plans have room with so many layers, or with no number of them."""
        self.repeated = repeated
        raised = self.open & (repeated > 0)
        known.roomy[raised], known.too_large[raised] = True, False
        self.open &= known.roomy

    def limits(self, rows: Index, usable: float) -> Array:
        """Bytes above which plans are not simulated: usable ones, of open plans those with room."""
        again = self.repeated[rows] > 0
        room = np.where(again, self.room.repeating[rows], self.room.plain[rows])
        return np.where(self.open[rows], room, usable)

    def one_more(self, known: Known, rows: Index) -> Flags:
        """Which of some plans have no room yet and are to be counted again, with a layer more.

        Those that have none with all layers but one are counted again without any.
        """
        short = self.open[rows] & ~known.roomy[rows]
        some = rows[short]
        self.repeated[some] += 1
        given_up = some[self.repeated[some] > self.most[some]]
        self.repeated[given_up], self.open[given_up] = 0, False
        known.margin[some] = np.where(
            self.repeated[some] > 0, self.repeating[some], self.plain[some]
        )
        return np.asarray(short)


def _margins(job: Job, alike: tuple[PlanTable, Index], some: int, stated: float | None) -> Array:
    """Margins of plans where those that ask for the fewest have `some` recomputed layers, (B,)."""
    plans, plan_of = alike
    layers = np.where(plans.recompute_layers == FEWEST, some, plans.recompute_layers)
    return margin_shares(job, replace(plans, recompute_layers=layers), stated)[plan_of]


def _all_but_one(job: Job, table: PlanTable) -> Ints:
    """All layers but one of each plan's largest stage, (B,)."""
    even = -(-job.model.num_layers // (table.pp * table.v))
    stated = [max(plan.stage_layers or (0,)) for plan in table.settings]
    largest = np.array(stated)[table.setting]
    return np.asarray(np.where(largest > 0, largest, even) - 1)
