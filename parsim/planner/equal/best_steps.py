"""Steps of the best plans known so far, and what another must not exceed beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from parsim.arrays import Array, Index
from parsim.plan import Plan, PlanTable
from parsim.planner.space.enumeration import without_cut

SLOWEST = 2.0
"""Steps of the fastest plan that one of a front of step time and memory may take."""

Steps = dict[Plan, float]
"""Seconds of plans, ascending; of plans that differ by their cut alone those of the fastest."""


@dataclass(slots=True)
class BestSteps:
    """Seconds of the fastest plans that fit, and of the fastest tight ones, ascending.

    At the most `top` of each are kept; None: all, for a front of step time and memory.
    """

    top: int | None
    fitting: Steps = field(default_factory=dict)
    tight: Steps = field(default_factory=dict)

    def add(self, table: PlanTable, steps: Array, fitting: Index, tight: Index) -> None:
        """Put simulated steps (B,) of plans that fit, and of tight ones, among the best."""
        self.fitting = self._best(self.fitting, table, steps, fitting)
        self.tight = self._best(self.tight, table, steps, tight)

    def _best(self, known: Steps, table: PlanTable, steps: Array, rows: Index) -> Steps:
        """The best of the known plans and of some rows."""
        best = dict(known)
        for row in rows.tolist():
            plan, step = without_cut(table.plan(row)), float(steps[row])
            best[plan] = min(step, best.get(plan, np.inf))
        return dict(islice(sorted(best.items(), key=lambda each: each[1]), self.top))

    @property
    def fastest(self) -> float:
        """Seconds of the fastest plan that fits; infinite where none is known to."""
        return _first(self.fitting.values())

    @property
    def worst(self) -> float:
        """Seconds that a plan must not exceed to be among the best that fit."""
        if self.top is None:
            return SLOWEST * self.fastest
        return self._last(self.fitting)

    @property
    def worst_tight(self) -> float:
        """Seconds that a plan must not exceed to be told where it is tight.

        Where plans fit, it is only if it is the fastest of all; else among the best.
        """
        if self.fitting:
            return min(self.fastest, _first(self.tight.values()))
        return self._last(self.tight)

    def _last(self, steps: Steps) -> float:
        """Seconds of the slowest of as many as are wanted; infinite where there are fewer."""
        return next(reversed(steps.values())) if len(steps) == self.top else np.inf


def _first(steps: Iterable[float]) -> float:
    return next(iter(steps), np.inf)
