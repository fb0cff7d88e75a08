"""Families of plans that a search has not looked at yet, those with the least bounds first.

    bound of the plain plan   16.1 s ... 17.7 s | 18.0 s ... 18.6 s | 18.65 s       | 18.7 s ...
    looked at                 at first          | when 17.7 s waits | when 18.65 s  | never

The fastest plans take 18.66 s here, so that no plan of the last families can be among them.
"""

from __future__ import annotations

import numpy as np

from parsim.cost.job import Job
from parsim.plan import PlanTable
from parsim.planner.bounds import KnownCuts, least_steps
from parsim.planner.space.families import Families

AT_ONCE = 1 << 19
"""Plans that are looked at together at first; each time after twice as many."""


class Unseen:
    """A queue of families, which leave it wave by wave; `plans` is how many plans there were."""

    def __init__(self, job: Job, families: Families, cuts: KnownCuts) -> None:
        """Bound the plain plans, where there are more plans than are looked at together."""
        sizes, self.families = families.sizes, families
        self.plans, self.wave, self._taken = int(sizes.sum()), AT_ONCE, 0
        several = self.plans > AT_ONCE
        bound = least_steps(job, families.plain, cuts) if several else np.zeros(len(sizes))
        self._order = np.argsort(bound, kind="stable")
        self._bound = bound[self._order]
        self._plans_to = np.append(0, np.cumsum(sizes[self._order]))

    @property
    def least(self) -> float:
        """Seconds that no plan of those unseen can undercut."""
        return float(self._bound[self._taken]) if self._taken < len(self._bound) else np.inf

    def take(self, most: float = np.inf) -> PlanTable:
        """The plans of families with bounds up to `most` seconds, where finite, or a wave of them.

        At least of one family.
        """
        first = self._taken
        if np.isfinite(most):
            enough = int(np.searchsorted(self._bound, most, side="right"))
        else:
            enough = int(np.searchsorted(self._plans_to, self._plans_to[first] + self.wave))
            self.wave *= 2
        self._taken = min(max(enough, first + 1), len(self._bound))
        return self.families.table(np.sort(self._order[first : self._taken]))

    def slower(self, worst: float) -> int:
        """How many plans of those unseen take longer."""
        useful = int(np.searchsorted(self._bound, worst, side="right"))
        return int(self._plans_to[-1] - self._plans_to[max(useful, self._taken)])
