"""How far a search of placements went: its best, and what became of the others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from parsim.plan import PlanSpace
from parsim.planner.limits import keeps_busy
from parsim.planner.mixed.candidates import Candidate


@dataclass(slots=True)
class Run:
    """How far a search went: the best so far, fastest first, and what happened to the others.

    `idle` ones of those priced have a larger bubble than is allowed, at least `least_idle`.
    `slower` placements have a bound above the slowest of the best; `least` is the least bound of
    what was not priced, seconds.
    """

    best: list[Candidate] = field(default_factory=list)
    tight: list[Candidate] = field(default_factory=list)
    nearest: Candidate | None = None
    placed: int = 0
    too_large: int = 0
    slower: int = 0
    evaluated: int = 0
    idle: int = 0
    least_idle: float = np.inf
    least: float = np.inf
    stopped: str = ""
    placements_done: bool = False

    @property
    def gap(self) -> float:
        """The share by which the best so far may be slower than the best of all; inf: unknown."""
        if not self.best:
            return np.inf
        return max(self.best[0].step / min(self.least, self.best[0].step) - 1.0, 0.0)

    def busy(self, candidate: Candidate, space: PlanSpace) -> bool:
        """Whether a priced placement keeps to the largest bubble of a space; others are counted."""
        if keeps_busy(candidate.bubble, space):
            return True
        self.idle += 1
        self.least_idle = min(self.least_idle, candidate.bubble)
        return False

    def late(self, until: float) -> bool:
        """Whether time is up, which then is why the search stopped."""
        if time.perf_counter() > until:
            self.stopped = "stopped by time limit"
        return bool(self.stopped)
