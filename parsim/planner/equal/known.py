"""What a search on equal nodes knows of each plan: bounds at first, then bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.software import Software
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.planner.result import EvaluatedPlan
from parsim.sim.confidence.memory_fit import Fit, has_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of each plan of a table, (B,) each.

    `layers` are the costs of the layers of some of them, `layer_row` which of these each plan has.
    `usable` are the bytes of a device beside its context, `margin` is the share of them that a plan
    must leave free to fit. `bound` are seconds and `peak` bytes that it needs at the least, or,
    where `counted`, its exact peak. `roomy` says that so many bytes leave the margin free and
    `too_large` that they are more than usable: where only a bound is known, that a plan may still
    fit, and that it cannot even be tight. `step` is infinite and `bubble` nan where it is not
    simulated. `max_bubble` is the largest bubble that a plan may have, where one is stated.
    """

    layers: LayerTable
    layer_row: Index
    usable: float
    margin: Array
    bound: Array
    peak: Array
    counted: Flags
    roomy: Flags
    too_large: Flags
    step: Array
    bubble: Array
    max_bubble: float | None = None

    @classmethod
    def unseen(
        cls,
        layers: LayerTable,
        layer_row: Index,
        *,
        usable: float,
        margin: Array,
        bound: Array,
        max_bubble: float | None = None,
    ) -> Known:
        """Nothing but layers, margins and a first bound of the step is known yet."""
        rows = len(bound)
        return cls(
            layers=layers,
            layer_row=layer_row,
            usable=usable,
            margin=margin,
            bound=bound,
            peak=np.zeros(rows),
            counted=np.zeros(rows, dtype=bool),
            roomy=np.ones(rows, dtype=bool),
            too_large=np.zeros(rows, dtype=bool),
            step=np.full(rows, np.inf),
            bubble=np.full(rows, np.nan),
            max_bubble=max_bubble,
        )

    def appended(self, other: Known) -> Known:
        """What is known of these plans, and of others behind them."""
        columns: dict[str, Any] = {
            f.name: np.append(getattr(self, f.name), getattr(other, f.name))
            for f in fields(Known)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        layers = LayerTable.joined([self.layers, other.layers])
        columns["layer_row"][len(self.bound) :] += len(self.layers.slowest_host)
        return replace(self, **columns, layers=layers)

    @property
    def fits(self) -> Flags:
        """Plans that fit, known for certain."""
        return self.fitting(slice(None))

    @property
    def tight(self) -> Flags:
        """Plans that are tight, known for certain."""
        return self.tightly(slice(None))

    @property
    def idle(self) -> Flags:
        """Plans whose bubble is above the largest that is allowed, known for certain."""
        return self.idling(slice(None))

    def layers_of(self, rows: Index) -> LayerTable:
        """Costs of the layers of some plans."""
        return self.layers.take(self.layer_row[rows])

    def fitting(self, rows: Index | slice) -> Flags:
        """Which of some plans fit, known for certain."""
        return np.asarray(self.counted[rows] & self.roomy[rows] & ~self.idling(rows))

    def tightly(self, rows: Index | slice) -> Flags:
        """Which of some plans are tight, known for certain."""
        fitting = self.counted[rows] & ~self.roomy[rows] & ~self.too_large[rows]
        return np.asarray(fitting & ~self.idling(rows))

    def idling(self, rows: Index | slice) -> Flags:
        """Which of some plans idle more than the largest bubble allowed, known for certain."""
        if self.max_bubble is None:
            return np.zeros(len(self.bubble[rows]), dtype=bool)
        seen = self.counted[rows] & ~self.too_large[rows]
        return np.asarray(seen & (self.bubble[rows] > self.max_bubble))

    def raise_bound(self, rows: Index, seconds: Array) -> None:
        """Note that the steps of some plans take so many seconds at the least."""
        self.bound[rows] = np.maximum(self.bound[rows], seconds)

    def weigh(self, software: Software, rows: Index, peak: Array) -> None:
        """Note the bytes of some plans, or what they need at the least."""
        self.peak[rows] = peak
        self.too_large[rows] = peak > self.usable
        some = np.flatnonzero(peak <= self.usable)
        weighed = rows[some]
        self.roomy[rows] = False
        self.roomy[weighed] = has_room(software, peak[some], self.usable, self.margin[weighed])

    def dominated(self, rows: Index) -> Flags:
        """Which of some plans cannot fit, or lose to one that fits by step time and by memory.

        By their bounds: a plan whose bytes were not looked at yet loses to none.
        """
        fitting = np.flatnonzero(self.fits)
        order = fitting[np.argsort(self.step[fitting], kind="stable")]
        least = np.minimum.accumulate(np.append(np.inf, self.peak[order]))
        faster = np.searchsorted(self.step[order], self.bound[rows], side="right")
        known = self.peak[rows] > 0.0
        return np.asarray(~self.roomy[rows] | (known & (least[faster] <= self.peak[rows])))

    def front(self, table: PlanTable, slowest: float) -> list[EvaluatedPlan]:
        """The plans that fit and that none beats in step time and in memory, fastest first.

        Those whose step is longer than `slowest` seconds are left out.
        """
        fitting = np.flatnonzero(self.fits & (self.step <= slowest))
        order = fitting[np.lexsort((self.peak[fitting], self.step[fitting]))]
        before = np.minimum.accumulate(np.append(np.inf, self.peak[order]))[:-1]
        return [self._plan(table, row) for row in order[self.peak[order] < before].tolist()]

    def fastest(self, table: PlanTable, among: Flags, top: int) -> list[EvaluatedPlan]:
        """The fastest plans among some, at equal times those with the lowest peak first."""
        rows = np.flatnonzero(among)
        order = rows[np.lexsort((self.peak[rows], self.step[rows]))]
        return [self._plan(table, row) for row in order[:top].tolist()]

    def _plan(self, table: PlanTable, row: int) -> EvaluatedPlan:
        return EvaluatedPlan(
            plan=table.plan(row),
            step_time=float(self.step[row]),
            bubble_fraction=float(self.bubble[row]),
            peak_allocated=float(self.peak[row]),
            fit=Fit.FITS if self.roomy[row] else Fit.TIGHT,
            margin=float(self.margin[row]),
            layers=(self.layers_of(np.array([row])),),
        )
