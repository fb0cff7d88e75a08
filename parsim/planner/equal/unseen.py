"""Families of plans that a search has not looked at yet, those with the least bounds first.

    bound of the plain plan   16.1 s ... 17.7 s | 18.0 s ... 18.6 s | 18.65 s       | 18.7 s ...
    looked at                 at first          | when 17.7 s waits | when 18.65 s  | never

The fastest plans take 18.66 s here, so that no plan of the last families can be among them.

No plan fits of a family whose parameters, gradients and optimizer states alone are too large, which
no saving changes: it has an infinite bound.

Where an answer is wanted before all is looked at, families of one setting are bounded together and
taken in small waves, and those of the settings that are left have no bound: nothing is known of
them. To bound plans of many settings takes as long as to bound tens of thousands of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from parsim.arrays import Array, Index, Ints
from parsim.cost.job import Job
from parsim.plan import PlanTable
from parsim.planner.bounds import KnownCuts, least_steps
from parsim.planner.space.families import Families
from parsim.planner.stop import Stop

AT_ONCE = 1 << 19
"""Plans that are looked at together at first; each time after twice as many."""

FIRST_WAVE, LARGEST_WAVE = 1 << 12, 1 << 16
"""So many of them where an answer is wanted early, at first and at most."""


@dataclass(slots=True)
class _Queue:
    """Families in order of their bounds, (F,) each: those from `taken` on wait."""

    rows: Index
    bound: Array
    plans_to: Ints
    taken: int = 0

    @classmethod
    def of(cls, rows: Index, bound: Array, sizes: Ints) -> _Queue:
        """Put families with so many plans each in order."""
        order = np.argsort(bound, kind="stable")
        return cls(rows[order], bound[order], np.append(0, np.cumsum(sizes[order])))

    @property
    def least(self) -> float:
        """Seconds that none that waits can undercut."""
        return float(self.bound[self.taken]) if self.taken < len(self.bound) else np.inf

    def within(self, most: float) -> int:
        """How many families have finite bounds up to `most` seconds."""
        side: Literal["left", "right"] = "right" if most < np.inf else "left"
        return int(np.searchsorted(self.bound, most, side=side))

    def wave(self, plans: int) -> int:
        """How many families there are before and within a wave of so many plans."""
        return int(np.searchsorted(self.plans_to, self.plans_to[self.taken] + plans))

    def take(self, enough: int) -> Index:
        """The rows up to so many families, of one at least, which wait no longer."""
        first, self.taken = self.taken, min(max(enough, self.taken + 1), len(self.bound))
        return np.sort(self.rows[first : self.taken])

    def slower(self, worst: float) -> int:
        """How many plans of those that wait take longer."""
        return self._waiting(self.within(worst), self.within(np.inf))

    @property
    def too_large(self) -> int:
        """How many plans of those that wait fit by no means."""
        return self._waiting(self.within(np.inf), len(self.bound))

    def _waiting(self, first: int, end: int) -> int:
        """How many plans wait of the families between two."""
        return int(self.plans_to[max(end, self.taken)] - self.plans_to[max(first, self.taken)])


class Unseen:
    """Families that wait, in one queue or one for each setting.

    `plans` is how many plans there were, `unbounded` how many of them have no bound yet; a device
    has so many `usable` bytes.
    """

    def __init__(
        self, job: Job, families: Families, usable: float, cuts: KnownCuts, stop: Stop
    ) -> None:
        """Bound the plain plans of all families, or of the first setting where time is short."""
        self.job, self.families, self.cuts, self.stop = job, families, cuts, stop
        self.usable = usable
        self.sizes = families.sizes
        self.plans, self.unbounded = int(self.sizes.sum()), int(self.sizes.sum())
        self.wave = FIRST_WAVE if stop.limited else AT_ONCE
        by_setting = list(families.plain.by_setting())
        self._left = by_setting[::-1] if stop.limited else [np.arange(len(self.sizes))]
        self._queues = list[_Queue]()
        first_step = stop.of_first_step()
        while self.bound_more() and not first_step.due:
            pass

    def bound_more(self) -> bool:
        """Bound the families of the next setting, unless all have bounds or time is up."""
        if not self._left or (self._queues and self.stop.due):
            return False
        rows = self._left.pop()
        sizes = self.sizes[rows]
        number, bound = int(sizes.sum()), np.zeros(len(rows))
        if not number == self.plans <= self.wave:  # else all are looked at together
            bound = least_steps(self.job, self._plain(rows), self.cuts, self.usable)
        self._queues.append(_Queue.of(rows, bound, sizes))
        self.unbounded -= number
        return True

    def _plain(self, rows: Index) -> PlanTable:
        """The plain plans of some families."""
        plain = self.families.plain
        return plain if len(rows) == len(plain) else plain.take(rows)

    @property
    def least(self) -> float:
        """Seconds that no plan can undercut of those that wait and have a bound."""
        return min((queue.least for queue in self._queues), default=np.inf)

    def take(self, most: float = np.inf) -> PlanTable:
        """The plans of families with bounds up to `most` seconds, where finite, or a wave of them.

        At least of one family, those of one queue; no more than a wave where time is limited.
        """
        queue = min(self._queues, key=lambda queue: queue.least)
        if np.isfinite(most) and not self.stop.limited:
            return self.families.table(queue.take(queue.within(most)))
        enough = min(queue.within(most), queue.wave(self.wave))
        self.wave = min(2 * self.wave, LARGEST_WAVE) if self.stop.limited else 2 * self.wave
        return self.families.table(queue.take(enough))

    def take_too_large(self) -> PlanTable:
        """The plans of all families that are left, which fit by no means."""
        rows = [queue.take(len(queue.bound)) for queue in self._queues]
        return self.families.table(np.sort(np.concatenate(rows)))

    @property
    def too_large(self) -> int:
        """How many plans of those that wait fit by no means."""
        return sum(queue.too_large for queue in self._queues)

    def slower(self, worst: float) -> int:
        """How many plans of those that wait take longer."""
        return sum(queue.slower(worst) for queue in self._queues)
