"""Plans that wait for their exact step, those together that one schedule serves.

    a schedule   its plans of all settings, until its bounds were raised by its actions
    a shape      its plans of one setting, which are priced and simulated together

What has the least bound comes first, whichever of the two it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index, sorted_values
from parsim.plan import PlanTable
from parsim.plan.names import AUTO
from parsim.planner.distinct import Cases


class Waits(NamedTuple):
    """Some rows with the least of their bounds; `shape` says that they are of one setting.

    `number` tells which came first of those with equal bounds.
    """

    bound: float
    number: int
    rows: Index
    shape: bool


class Waiting:
    """A queue of rows of a table, those with the least bound first.

    Bounds (B,) may be raised later on: they are looked at when rows are put in.
    """

    def __init__(self) -> None:
        self._queue: list[Waits] = []
        self._number = 0

    def add(self, table: PlanTable, bound: Array, rows: Index) -> None:
        """Queue rows schedule by schedule, anew with those that wait for their schedule already."""
        others = [waits.rows for waits in self._queue if not waits.shape]
        self._queue = [waits for waits in self._queue if waits.shape]
        heapq.heapify(self._queue)
        for alike in _by_schedule(table, np.concatenate([*others, rows])):
            self._add(bound, alike, shape=False)

    @property
    def least(self) -> float:
        """Seconds that nothing in the queue can undercut."""
        return self._queue[0].bound if self._queue else np.inf

    def take(self) -> Waits:
        """The rows with the least bound, which leave the queue."""
        return heapq.heappop(self._queue)

    def add_shapes(self, table: PlanTable, bound: Array, rows: Index) -> None:
        """Put rows of one schedule back, setting by setting."""
        setting = table.setting[rows]
        for number in sorted_values(setting):
            self._add(bound, rows[setting == number], shape=True)

    def _add(self, bound: Array, rows: Index, *, shape: bool) -> None:
        order = rows[np.argsort(bound[rows], kind="stable")]
        waits = Waits(float(bound[order[0]]), self._number, order, shape)
        self._number += 1
        heapq.heappush(self._queue, waits)


def _by_schedule(table: PlanTable, rows: Index) -> Iterator[Index]:
    """The rows of each schedule; a plan whose order is searched for has one of its own."""
    if not len(rows):
        return
    pipelined = table.pp[rows] > 1
    schedule = np.where(pipelined, table.schedule[rows], 0)  # a single rank's is always the same
    searched = np.array([name == AUTO for name in table.schedules])[schedule]
    alone = np.where(searched & pipelined, 1 + rows, 0)
    columns = (table.pp[rows], table.num_microbatches[rows], table.v[rows])
    which = Cases.among(schedule, *columns, alone).of
    order = np.argsort(which, kind="stable")
    starts = np.flatnonzero(np.diff(which[order], prepend=-1))
    yield from np.split(rows[order], starts[1:])
