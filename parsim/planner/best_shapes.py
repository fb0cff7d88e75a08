"""Search on equal nodes: plans with the least bounds first, all of one shape at once.

    1  every legal plan has a bound that knows layers alone (`shared_bound`)
    2  those with the least of these, in growing portions: bounds of seconds and bytes that know
       stages, messages and the end of the step (`plan_bounds`); what cannot fit is out
    3  the shape (schedule, pp, micro-batches, v) with the least bound: its actions are built, and
       those of its plans that may be among the best are counted in memory and simulated
    4  until no bound is below the slowest of the best

so that the best are those of all legal plans, and most schedules are never built.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.job import Job
from parsim.cost.step.stages import LayerTable
from parsim.plan import PlanTable
from parsim.planner.bounds import growth, plan_bounds, shared_bound
from parsim.planner.exact import exact
from parsim.planner.result import EvaluatedPlan, Progress
from parsim.planner.space import Enumeration
from parsim.sim.recurrence.shapes import shapes

PORTION = 4096
"""Plans that are bounded first; each time twice as many."""

Shape = tuple[str, int, int, int]
"""Schedule, pp, micro-batches, v: plans of one shape run the same actions."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of each plan of a table, (B,) each.

    `bound` are seconds and `peak` bytes that it needs at the least, or, where `counted`, its exact
    peak; `step` is infinite and `bubble` nan where it is not simulated. `too_large` are those that
    cannot fit.
    """

    bound: Array
    peak: Array
    counted: Flags
    too_large: Flags
    step: Array
    bubble: Array

    def plan(self, table: PlanTable, row: int) -> EvaluatedPlan:
        """The plan of a row with its numbers."""
        step, bubble, peak = self.step[row], self.bubble[row], self.peak[row]
        return EvaluatedPlan(table.plan(row), float(step), float(bubble), float(peak))


class BestShapes:
    """One search: what is known, what waits, and how far it came."""

    def __init__(
        self, job: Job, listed: Enumeration, table: PlanTable, capacity: float, top: int
    ) -> None:
        """Bound every plan by its layers.

        Args:
            job: model, cluster of one kind of node, software.
            listed: the legal plans.
            table: its table.
            capacity: bytes that a rank may take.
            top: how many of the best are wanted.
        """
        self.job, self.table, self.twins = job, table, listed.twins
        self.capacity, self.top = capacity, top
        _, first, self.layer_row = np.unique(listed.twins, return_index=True, return_inverse=True)
        self.layers = LayerTable.of(job, table.take(first))
        shared = shared_bound(
            [self.layers], table.take(first), job.model, [job.cluster.num_devices]
        )
        size, none = len(table), np.zeros(len(table), dtype=bool)
        self.known = Known(
            bound=shared[self.layer_row] * growth(job.cluster),
            peak=np.zeros(size),
            counted=none.copy(),
            too_large=none.copy(),
            step=np.full(size, np.inf),
            bubble=np.full(size, np.nan),
        )
        self.waiting = np.argsort(self.known.bound, kind="stable")
        self.queue: list[tuple[float, int, Shape]] = []
        self.pending: dict[Shape, list[Index]] = {}
        self.worst = np.inf
        self.stopped = ""

    def run(self, progress: Progress | None, limit: float) -> None:
        """Search to the end, or until `time.perf_counter` is past the limit, or Ctrl-C."""
        portion, number, told = PORTION, 0, 0
        try:
            while self.least <= self.worst and self.least < np.inf:
                if self.queue and self.queue[0][0] <= self._next_waiting:
                    self._simulate(heapq.heappop(self.queue)[2])
                    number += 1
                else:
                    self._bound(portion)
                    portion *= 2
                done = self.decided
                if progress and done > told:
                    progress(done, len(self.table))
                    told = done
                late = time.perf_counter() > limit and (number or not self.queue)
                if late and done < len(self.table):
                    self.stopped = "stopped by time limit"
                    break
        except KeyboardInterrupt:
            self.stopped = "interrupted"

    @property
    def least(self) -> float:
        """Seconds that no plan can undercut of which more is to be known."""
        return min(self._next_waiting, self.queue[0][0] if self.queue else np.inf)

    @property
    def slower(self) -> Flags:
        """Plans that are not among the best by their bound alone."""
        return ~self.known.counted & ~self.known.too_large & (self.known.bound > self.worst)

    @property
    def decided(self) -> int:
        """How many plans are simulated, too large or slower."""
        known = self.known
        return int((known.counted | known.too_large | self.slower).sum())

    @property
    def _next_waiting(self) -> float:
        return float(self.known.bound[self.waiting[0]]) if len(self.waiting) else np.inf

    def layers_of(self, rows: Index) -> LayerTable:
        """Costs of the layers of some plans."""
        return self.layers.take(self.layer_row[rows])

    def _bound(self, portion: int) -> None:
        """Bound the next plans by stages and bytes, and put those that may fit in the queue."""
        rows, self.waiting = self.waiting[:portion], self.waiting[portion:]
        known = self.known
        rows = rows[known.bound[rows] <= self.worst]
        for alike in self._of_equal_stages(rows):
            plans, priced = self.table.take(alike), self.layers_of(alike)
            bounds = plan_bounds(self.job, plans, priced, self.twins[alike])
            known.bound[alike] = np.maximum(bounds.step, known.bound[alike])
            known.peak[alike] = bounds.peak
            known.too_large[alike] = bounds.peak > self.capacity
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
        rows = rows[self.known.bound[rows] <= self.worst]
        if len(rows):
            self.count(rows)

    def count(self, rows: Index) -> None:
        """Count the bytes of plans of one shape, and simulate those that fit."""
        known = self.known
        result = exact(self.job, self.table.take(rows), self.layers_of(rows), self.capacity)
        known.peak[rows], known.step[rows], known.bubble[rows] = (
            result.peak,
            result.step,
            result.bubble,
        )
        known.too_large[rows] = result.peak > self.capacity
        known.counted[rows] = True
        steps = known.step[np.isfinite(known.step)]
        if len(steps) >= self.top:
            self.worst = float(np.partition(steps, self.top - 1)[self.top - 1])

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
