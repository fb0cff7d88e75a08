"""Placements of plans in the order of their bounds: the best of all, or of those there is time for.

A plan is placed when no placement has a lesser bound, a placement is priced when no plan and no
other placement has:

    plans   20 s | 21 s | 22 s | ...       20 s is placed: 20.5 s and 24 s, a third does not fit;
    queue   20.5 s | 24 s                  then 20.5 s is priced, then 21 s is placed
"""

from __future__ import annotations

import heapq
import time
from itertools import count, islice

import numpy as np

from parsim.planner.mixed.candidates import Candidate, Candidates
from parsim.planner.mixed.progress import Run
from parsim.planner.mixed.roomy_first import roomy_first
from parsim.planner.result import Progress
from parsim.planner.stop import PATIENCE
from parsim.sim.confidence.memory_fit import Fit

CHUNK = 32
"""Plans that are placed at once, so that their bytes are counted together."""

SMALL_CHUNK = 4
"""So many of them where time is limited: a plan has tens of placements."""


def rank(candidate: Candidate) -> tuple[float, float]:
    """Fast before slow, of equal steps the one with the lowest peak."""
    return (candidate.step, candidate.peak)


def best_by_bounds(work: Candidates, top: int, limit: float, progress: Progress | None) -> Run:
    """The `top` fastest placements; plans are placed when their bound is the least of all.

    Where time is limited, plans that may have room are placed first, until one is priced.
    """
    search = _BestFirst(work, top, limit, progress)
    try:
        if limit < np.inf:
            search.price_one()
        while search.go_on():
            pass
        search.ran.placements_done = not search.ran.stopped
    except KeyboardInterrupt:
        search.ran.stopped = "interrupted"
    return search.ended()


class _BestFirst:
    """A search of placements: plans that `waiting` are to be placed, placements to be priced.

    `waiting` are rows of plans, that with the least bound last; `queue` begins with the placement
    of the least bound.
    """

    def __init__(self, work: Candidates, top: int, limit: float, progress: Progress | None) -> None:
        self.work, self.top, self.limit, self.progress = work, top, limit, progress
        self.ran, self.bounds = Run(), work.bounds()
        self.waiting = np.argsort(self.bounds, kind="stable").tolist()[::-1]
        self.queue: list[tuple[float, int, Candidate]] = []
        self.numbers = count()
        self.chunk = CHUNK if limit == np.inf else SMALL_CHUNK
        self.patient = max(limit, time.perf_counter()) + PATIENCE

    @property
    def unplaced(self) -> float:
        """Seconds that no plan can undercut that waits."""
        return float(self.bounds[self.waiting[-1]]) if self.waiting else np.inf

    @property
    def unpriced(self) -> float:
        """Seconds that no placement can undercut that waits."""
        return self.queue[0][0] if self.queue else np.inf

    @property
    def worst(self) -> float:
        """Seconds that a placement must undercut to be among the best."""
        return self.ran.best[-1].step if len(self.ran.best) == self.top else np.inf

    def price_one(self) -> None:
        """Price a first placement that fits, of plans that may have room."""
        rows = roomy_first(self.work, np.array(self.waiting[::-1], dtype=np.int64))
        placed = set[int]()
        while not self.ran.best and (some := list(islice(rows, self.chunk))):
            self._place(some)
            placed.update(some)
            while self.queue and not self.ran.best:
                self._price()
            if not self.ran.best and self._late():
                break
        self.waiting = [row for row in self.waiting if row not in placed]

    def go_on(self) -> bool:
        """Place or price what has the least bound; whether there is more, and time for it."""
        least = min(self.unplaced, self.unpriced)
        if self.ran.stopped or least == np.inf or least >= self.worst:
            return False
        if self.unplaced <= self.unpriced:
            self._place([self.waiting.pop() for _ in range(min(self.chunk, len(self.waiting)))])
        else:
            self._price()
        return not ((self.ran.best or not self.queue) and self._late())

    def _late(self) -> bool:
        """Whether time is up; for a first placement there is some patience."""
        return self.ran.late(self.limit if self.ran.best else self.patient)

    def _place(self, rows: list[int]) -> None:
        for candidate in _noted(self.ran, self.work.placed(rows)):
            heapq.heappush(self.queue, (candidate.bound, next(self.numbers), candidate))
        if self.progress:
            self.progress(len(self.bounds) - len(self.waiting), len(self.bounds))

    def _price(self) -> None:
        candidate = heapq.heappop(self.queue)[2]
        self.work.run(candidate)
        self.ran.evaluated += 1
        if self.ran.busy(candidate, self.work.space):
            self.ran.best = sorted([*self.ran.best, candidate], key=rank)[: self.top]

    def ended(self) -> Run:
        """How far it went."""
        self.ran.slower = sum(bound >= self.worst for bound, *_ in self.queue)
        self.ran.least = min(self.unplaced, self.unpriced)
        return self.ran


def _noted(ran: Run, placed: list[Candidate]) -> list[Candidate]:
    """The candidates that fit; tight ones are kept for later, the others counted."""
    fitting = [candidate for candidate in placed if candidate.fit is Fit.FITS]
    tight = [candidate for candidate in placed if candidate.fit is Fit.TIGHT]
    ran.tight += tight
    ran.placed += len(placed)
    ran.too_large += len(placed) - len(fitting) - len(tight)
    known = [ran.nearest] if ran.nearest else []
    ran.nearest = min([*known, *placed], key=lambda candidate: candidate.share, default=None)
    return fitting
