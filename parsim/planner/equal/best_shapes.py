"""Search on equal nodes: plans with the least bounds first, all of one shape at once.

    1  every legal plan has a bound that knows layers alone (`shared_bound`)
    2  those with the least of these, in growing portions: bounds of seconds and bytes that know
       stages, messages and the end of the step (`plan_bounds`); what cannot fit is out
    3  the shape (schedule, pp, micro-batches, v) with the least bound: its actions are built, and
       those of its plans that may be among the best are counted in memory and simulated
    4  until no bound is below the slowest of the best

so that the best are those of all legal plans, and most schedules are never built. A plan that is
tight at best, by its bytes, is simulated only where it may be faster than all that fit, or where
none fits among the best of the tight ones.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator

import numpy as np

from parsim.arrays import Flags, Index
from parsim.cost.job import Job
from parsim.cost.step.stages import LayerTable
from parsim.plan import PlanSpace, PlanTable
from parsim.planner.bounds import growth, plan_bounds, shared_bound
from parsim.planner.equal.exact import exact
from parsim.planner.equal.known import Known
from parsim.planner.result import Progress, Sighted
from parsim.planner.space import Enumeration
from parsim.sim.confidence.memory_fit import margin_shares
from parsim.sim.recurrence.shapes import shapes

SLOWEST = 2.0
"""Steps of the fastest plan that one of a front of step time and memory may take."""

PORTION = 4096
"""Plans that are bounded first; each time twice as many."""

Shape = tuple[str, int, int, int]
"""Schedule, pp, micro-batches, v: plans of one shape run the same actions."""


class BestShapes:
    """One search: what is known, what waits, and how far it came."""

    def __init__(
        self,
        job: Job,
        listed: Enumeration,
        table: PlanTable,
        space: PlanSpace,
        top: int | None,
    ) -> None:
        """Bound every plan by its layers.

        Args:
            job: model, cluster of one kind of node, software.
            listed: the legal plans.
            table: its table.
            space: what a plan must leave free to fit, its memory cap and its largest bubble.
            top: how many of the fastest are wanted; None: all that no other plan beats in step
                time and in memory.
        """
        self.job, self.table, self.twins, self.top = job, table, listed.twins, top
        _, first, self.layer_row = np.unique(listed.twins, return_index=True, return_inverse=True)
        plans = table.take(first)
        self.layers = LayerTable.of(job, plans)
        shared = shared_bound([self.layers], plans, job.model, [job.cluster.num_devices])
        self.known = Known.unseen(
            usable=min(job.device.usable_memory, space.memory_cap or np.inf),
            margin=margin_shares(job, plans, space.memory_margin)[self.layer_row],
            bound=shared[self.layer_row] * growth(job.cluster),
            max_bubble=space.max_bubble,
        )
        self.waiting = np.argsort(self.known.bound, kind="stable")
        self.queue: list[tuple[float, int, Shape]] = []
        self.pending: dict[Shape, list[Index]] = {}
        self.fitting, self.tight = np.zeros(0), np.zeros(0)
        self.stopped = ""
        self.in_hand = np.inf

    def run(self, progress: Progress | None, limit: float, sighted: Sighted | None = None) -> None:
        """Search to the end, or until `time.perf_counter` is past the limit, or Ctrl-C."""
        portion, number, told = PORTION, 0, 0
        try:
            while self.least <= self.worst and self.least < np.inf:
                self.in_hand = self.least
                if self.queue and self.queue[0][0] <= self._next_waiting:
                    self._simulate(heapq.heappop(self.queue)[2])
                    number += 1
                else:
                    self._bound(portion)
                    portion *= 2
                self.in_hand = np.inf
                done = self.decided
                if progress and done > told:
                    progress(done, len(self.table))
                    told = done
                if sighted and len(self.fitting):
                    sighted(float(self.fitting[0]), self.gap)
                late = time.perf_counter() > limit and (number or not self.queue)
                if late and done < len(self.table):
                    self.stopped = "stopped by time limit"
                    break
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    @property
    def gap(self) -> float:
        """The share by which the fastest plan known to fit may be slower than the best of all.

        Infinite where none is known to fit; nothing where no bound of another is below it.
        """
        if not len(self.fitting):
            return np.inf
        best = float(self.fitting[0])
        return best / min(self.least, self.in_hand, best) - 1.0

    @property
    def least(self) -> float:
        """Seconds that no plan can undercut of which more is to be known."""
        return min(self._next_waiting, self.queue[0][0] if self.queue else np.inf)

    @property
    def worst(self) -> float:
        """Seconds that a plan must not exceed to be among the best that fit."""
        if self.top is None:
            return SLOWEST * float(self.fitting[0]) if len(self.fitting) else np.inf
        return float(self.fitting[-1]) if len(self.fitting) == self.top else np.inf

    @property
    def worst_tight(self) -> float:
        """Seconds that a plan must not exceed to be told where it is tight.

        Where plans fit, it is only if it is the fastest of all; else among the best.
        """
        if len(self.fitting):
            return float(min(self.fitting[0], self.tight.min(initial=np.inf)))
        return float(self.tight[-1]) if len(self.tight) == self.top else np.inf

    @property
    def slower(self) -> Flags:
        """Plans that are not among the best by their bound alone, whether they fit or not."""
        known = self.known
        return ~known.counted & ~known.too_large & self._beaten(np.arange(len(self.table)))

    @property
    def decided(self) -> int:
        """How many plans are simulated, too large or slower."""
        known = self.known
        return int((known.counted | known.too_large | self.slower).sum())

    @property
    def _next_waiting(self) -> float:
        return float(self.known.bound[self.waiting[0]]) if len(self.waiting) else np.inf

    def _beaten(self, rows: Index) -> Flags:
        """Which of some plans are too slow by their bounds, those that cannot fit among them."""
        if self.top is None:
            return self.known.dominated(rows) | (self.known.bound[rows] > self.worst)
        limit = np.where(self.known.roomy[rows], self.worst, self.worst_tight)
        return np.asarray(self.known.bound[rows] > limit)

    def layers_of(self, rows: Index) -> LayerTable:
        """Costs of the layers of some plans."""
        return self.layers.take(self.layer_row[rows])

    def _bound(self, portion: int) -> None:
        """Bound the next plans by stages and bytes, and put those that may fit in the queue."""
        rows, self.waiting = self.waiting[:portion], self.waiting[portion:]
        known = self.known
        rows = rows[~self._beaten(rows)]
        for alike in self._of_equal_stages(rows):
            plans, priced = self.table.take(alike), self.layers_of(alike)
            bounds = plan_bounds(self.job, plans, priced, self.twins[alike])
            known.bound[alike] = np.maximum(bounds.step, known.bound[alike])
            known.weigh(self.job.software, alike, bounds.peak)
        live = np.sort(rows[~known.too_large[rows]])
        for shape, chosen in shapes(self.table.take(live)) if len(live) else ():
            self.pending.setdefault(shape, []).append(live[chosen])
            least = float(known.bound[live[chosen]].min())
            heapq.heappush(self.queue, (least, len(self.queue), shape))

    def _of_equal_stages(self, rows: Index) -> Iterator[Index]:
        """The rows, by pp and v."""
        key = self.table.pp[rows] * (int(self.table.v.max()) + 1) + self.table.v[rows]
        order = np.argsort(key, kind="stable")
        edges = np.flatnonzero(np.diff(key[order])) + 1
        return (part for part in np.split(rows[order], edges) if len(part))

    def _simulate(self, shape: Shape) -> None:
        """Simulate what waits of a shape and may be among the best."""
        rows = np.concatenate([*self.pending.pop(shape, []), np.zeros(0, dtype=np.int64)])
        rows = rows[~self._beaten(rows)]
        if len(rows):
            self.count(rows)

    def count(self, rows: Index) -> None:
        """Count the bytes of plans of one shape, and simulate those that fit or are tight."""
        known = self.known
        result = exact(self.job, self.table.take(rows), self.layers_of(rows), known.usable)
        known.weigh(self.job.software, rows, result.peak)
        known.step[rows], known.bubble[rows] = result.step, result.bubble
        known.counted[rows] = True
        fits, tight = known.fits[rows], known.tight[rows]
        self.fitting = np.sort(np.append(self.fitting, result.step[fits]))[: self.top]
        self.tight = np.sort(np.append(self.tight, result.step[tight]))[: self.top]

    def nearest(self) -> int:
        """The plan that needs the least bytes, of those whose bytes were looked at."""
        looked = self.known.peak > 0.0
        for _ in range(NEAREST):
            row = int(np.argmin(np.where(looked, self.known.peak, np.inf)))
            if self.known.counted[row]:
                break
            self.count(np.array([row]))
        return int(np.argmin(np.where(looked, self.known.peak, np.inf)))


NEAREST = 32
"""Plans whose bytes are counted exactly to tell which comes nearest."""
