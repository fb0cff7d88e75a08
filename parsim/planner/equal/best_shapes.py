"""Search on equal nodes: plans with the least bounds first, all of one shape at once.

    1  every legal plan has bounds of seconds and bytes (`planner/bounds`); what cannot fit is out
    2  the schedule (name, pp, micro-batches, v) with the least bound: its actions are built, and
       the longest ways through them raise the bounds of its plans
    3  the shape (schedule and setting) with the least bound: those of its plans that may be among
       the best are counted in memory and simulated
    4  until no bound is below the slowest of the best

so that the best are those of all legal plans, and most schedules are never built. A plan that is
tight at best, by its bytes, is simulated only where it may be faster than all that fit, or where
none fits among the best of the tight ones.
"""

from __future__ import annotations

import time

import numpy as np

from parsim.arrays import Flags, Index
from parsim.cost.job import Job
from parsim.plan import PlanSpace, PlanTable
from parsim.planner.bounds import KnownCuts
from parsim.planner.equal.best_steps import BestSteps
from parsim.planner.equal.known import Known
from parsim.planner.equal.seen import Seen
from parsim.planner.equal.telling import Telling
from parsim.planner.equal.unseen import Unseen
from parsim.planner.equal.waiting import Waiting, Waits
from parsim.planner.result import Progress, Sighted
from parsim.planner.space.families import Families
from parsim.planner.stop import PATIENCE, Stop

NEAREST = 32
"""Plans whose bytes are counted exactly to tell which comes nearest."""

FIRST = 16
"""Plans of a shape that are simulated together at first; each time after twice as many."""

AHEAD = 1.05
"""Plans up to so many times the least bound are looked at together.

So that most plans of a schedule are, which is built for them once: to build it takes as long as to
bound forty thousand plans.
"""


class BestShapes:
    """One search: what is known, what waits, and how far it came."""

    def __init__(
        self,
        job: Job,
        families: Families,
        space: PlanSpace,
        top: int | None,
        stop: Stop | None = None,
    ) -> None:
        """Bound the plans that are looked at first.

        Args:
            job: model, cluster of one kind of node, software.
            families: the legal plans.
            space: what a plan must leave free to fit, its memory cap and its largest bubble.
            top: how many of the fastest are wanted, of those that differ by their cut alone one;
                None: all that no other plan beats in step time and in memory.
            stop: when the search ends at the latest; None: when it is done.
        """
        self.job, self.space, self.best = job, space, BestSteps(top)
        self.stop = Stop() if stop is None else stop
        self.usable = min(job.usable_memory, space.memory_cap or np.inf)
        self.cuts: KnownCuts = {}
        try:
            self._begin(families)
        except KeyboardInterrupt:  # the first plans at least, which are few then
            self.stop.interrupt()
            self._begin(families)
        self.stopped = ""
        self.in_hand, self.lost = np.inf, np.inf

    def _begin(self, families: Families) -> None:
        """Bound the plans that are looked at first."""
        self.unseen = Unseen(self.job, families, self.usable, self.cuts, self.stop)
        self.seen = self._looked_at(self.unseen.take())
        self.waiting = Waiting()
        self._wait(self.known.too_large)

    def run(self, progress: Progress | None, sighted: Sighted | None = None) -> None:
        """Search to the end, or until time is up, or Ctrl-C."""
        telling = Telling(progress, self.unseen.plans)
        try:
            while self._has_more() and not self.stop.due:
                self._go_on()
                telling.tell(lambda: self.decided)
                if sighted and self.best.fastest < np.inf:
                    sighted(self.best.fastest, self.gap)
            telling.tell(lambda: self.decided, last=True)
        except KeyboardInterrupt:
            self.stop.interrupt()
            self.lost = self.in_hand
        if self.stop.due and self.decided < self.unseen.plans:
            self.stopped = self.stop.reason
            self._hurry()

    def _has_more(self) -> bool:
        """Whether a plan that is left may be among the best, as far as bounds are known."""
        while not (self.least <= self.best.worst and self.least < np.inf):
            if not self.unseen.bound_more():
                return False
        return True

    def _go_on(self) -> None:
        """Look at what has the least bound."""
        if self.unseen.least <= self.waiting.least:
            self._see_more()
        else:
            self._work_on(self.waiting.take())

    def _hurry(self) -> None:
        """Look on for a first plan that fits, with some patience, and for one plan whatever."""
        until = time.perf_counter() + PATIENCE
        while self.best.fastest == np.inf and self.least < np.inf:
            if self.known.counted.any() and time.perf_counter() > until:
                break
            self._go_on()

    @property
    def table(self) -> PlanTable:
        """The plans that were looked at."""
        return self.seen.table

    @property
    def known(self) -> Known:
        """What is known of them."""
        return self.seen.known

    @property
    def gap(self) -> float:
        """The share by which the fastest plan known to fit may be slower than the best of all.

        Infinite where none is known to fit, or where some plans have no bound; nothing where no
        bound of another is below it.
        """
        best = self.best.fastest
        if best == np.inf or self.unseen.unbounded:
            return np.inf
        return best / min(self.undecided, best) - 1.0

    @property
    def undecided(self) -> float:
        """Seconds that no plan can undercut that waits, is looked at, or was when Ctrl-C came."""
        return min(self.least, self.in_hand, self.lost)

    @property
    def least(self) -> float:
        """Seconds that no plan can undercut of which more is to be known."""
        return min(self.waiting.least, self.unseen.least)

    @property
    def slower(self) -> int:
        """How many plans are not among the best by their bound alone, whether they fit or not."""
        known = self.known
        beaten = self._beaten(np.arange(len(self.table)))
        looked_at = int((~known.counted & ~known.too_large & beaten).sum())
        return looked_at + self.unseen.slower(self.best.worst)

    @property
    def decided(self) -> int:
        """How many plans are simulated, too large or slower."""
        return int(self.known.counted.sum()) + self.too_large + self.slower

    @property
    def too_large(self) -> int:
        """How many plans do not fit by their bytes alone, as far as these were looked at."""
        return int(self.known.too_large.sum()) + self.unseen.too_large

    def _beaten(self, rows: Index) -> Flags:
        """Which of some plans are too slow by their bounds, those that cannot fit among them."""
        if self.best.top is None:
            return self.known.dominated(rows) | (self.known.bound[rows] > self.best.worst)
        limit = np.where(self.known.roomy[rows], self.best.worst, self.best.worst_tight)
        return np.asarray(self.known.bound[rows] > limit)

    def _see_more(self) -> None:
        """Bound the next plans."""
        before, self.in_hand = len(self.table), self.unseen.least
        seen = self._looked_at(self.unseen.take(min(AHEAD * self.waiting.least, self.best.worst)))
        self.seen = self.seen.appended(seen)
        self._wait(np.append(np.ones(before, dtype=bool), seen.known.too_large))
        self.in_hand = np.inf

    def _looked_at(self, table: PlanTable) -> Seen:
        """Some plans with their bounds."""
        return Seen.of(self.job, self.space, table, self.usable, self.cuts)

    def _wait(self, others: Flags) -> None:
        """Let all plans but the `others` wait for their exact steps."""
        self.waiting.add(self.table, self.known.bound, np.flatnonzero(~others))

    def _work_on(self, waits: Waits) -> None:
        """Look at a schedule's plans again, or simulate those of one shape."""
        self.in_hand, rows = waits.bound, waits.rows[~self._beaten(waits.rows)]
        if waits.shape:
            self._simulate(rows)
        elif len(rows):
            if not self.stop.due:  # else the bounds that they have must do
                self.seen.raise_bounds(self.job.model.num_layers, rows)
            self.waiting.add_shapes(self.table, self.known.bound, rows)
        self.in_hand = np.inf

    def _simulate(self, rows: Index) -> None:
        """Simulate those of a shape that may be among the best, the least bounds first.

        Where time is up, those that are left wait again.
        """
        some = FIRST
        while len(rows := rows[~self._beaten(rows)]):
            self.count(rows[:some])
            rows, some = rows[some:], 2 * some
            if len(rows) and self.stop.due:
                self.waiting.add_shapes(self.table, self.known.bound, rows)
                return

    def count(self, rows: Index) -> None:
        """Count the bytes of plans of one shape, and simulate those that fit or are tight."""
        known = self.known
        self.seen.count(self.job, self.space, rows)
        self.best.add(self.table, known.step, rows[known.fitting(rows)], rows[known.tightly(rows)])

    def nearest(self) -> int:
        """The plan that needs the least bytes, of those whose bytes were looked at."""
        if self.unseen.too_large:
            self.seen = self.seen.appended(self._looked_at(self.unseen.take_too_large()))
        looked = self.known.peak > 0.0
        for _ in range(NEAREST):
            row = int(np.argmin(np.where(looked, self.known.peak, np.inf)))
            if self.known.counted[row]:
                break
            self.count(np.array([row]))
        return int(np.argmin(np.where(looked, self.known.peak, np.inf)))
