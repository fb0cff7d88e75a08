"""Orders found by list scheduling: each free rank takes the most urgent action that can run.

    rank 1 is free at 4      1F2 can run since 3      1B0 can run since 4      most urgent: 1B0

What is urgent is a matter of the schedule. Memory is bounded: a rank never holds more chunks of
micro-batches than its limit. Of that limit, a forward leaves a chunk free for each deeper stage of
the same rank, so that whatever has begun can go on to the loss and come back.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Index
from parsim.schedule.orders.loops import PACE
from parsim.schedule.orders.numbered import Numbered
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Ordered, Work

PATIENT = 3
"""Turns without anything shorter after which an order is turned no more."""

ROUNDING = 1e-9

RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0)
"""Lengths of a backward, that of a forward being 1, for which an order is tried."""


def best_order(work: Work, turned: int = 0, enough: float = 0.0) -> Ordered:
    """The shortest of the orders that list scheduling finds for several lengths of backwards.

    The limit makes ranks take backwards. Orders are listed with the work's messages and as if these
    took no time: the shortest may be either.

    Args:
        work: any number of stages a rank and copies.
        turned: actions over which the shortest and one of backwards first are turned round again
            and again (`_turned`), where the shortest is longer than `enough`.
        enough: an end at which to stop.

    Raises:
        ScheduleError: a rank's limit is below the number of its stages.
    """
    numbered = Numbered.of(work)
    durations = numbered.lengths(work.forward, work.backward)
    by_number = np.arange(len(durations))
    tried = list[tuple[float, list[int]]]()
    for ratio in RATIOS:
        lengths = np.where(numbered.backward, ratio, 1.0)
        for message in dict.fromkeys((0.0, work.message)):
            order, ends = _listed(numbered, by_number, lengths, message)
            if all(order != other for _, other in tried):
                if message != work.message or not np.array_equal(lengths, durations):
                    ends = numbered.ends(order, durations)
                tried.append((float(ends.max()), order))
    if turned and min(tried)[0] > enough * (1.0 + ROUNDING):
        backwards = np.argsort(~numbered.backward, kind="stable")
        begin = [min(tried)[1], _listed(numbered, backwards, durations, work.message)[0]]
        tried += [_turned(numbered, each, turned // len(begin), enough) for each in begin]
    length, order = min(tried, key=lambda each: each[0])
    return Ordered(rows=numbered.rows(order), makespan=length)


def _turned(
    numbered: Numbered, order: list[int], actions: int, enough: float
) -> tuple[float, list[int]]:
    """The shortest order on the way from one that is listed anew from its end, and again.

    What ended last is the most urgent backwards in time, where a B is a forward and an F its
    backward, and what began first the most urgent then. Source: forward-backward improvement of
    project schedules, Li and Willis 1992; Valls, Ballestin and Quintanilla 2005.
    """
    work, mirror = numbered.work, numbered.mirrored()
    ahead = numbered.lengths(work.forward, work.backward)
    back = numbered.lengths(work.backward, work.forward)
    ends, waited = numbered.ends(order, ahead), 0
    best = float(ends.max()), order
    for _ in range(actions // (2 * len(ahead))):
        for lengths in (back, ahead):
            urgent = np.argsort(-ends[mirror], kind="stable")
            listed, ends = _listed(numbered, urgent, lengths, work.message)
        length = float(ends.max())
        waited = 0 if length < best[0] * (1.0 - ROUNDING) else waited + 1
        best = best if waited else (length, listed)
        if waited == PATIENT or best[0] <= enough * (1.0 + ROUNDING):
            break
    return best


def makespan(work: Work, rows: Rows) -> float:
    """When the last action of an order ends, which is `inf` where some rank never goes on."""
    numbered = Numbered.of(work)
    lengths = numbered.lengths(work.forward, work.backward)
    return float(numbered.ends(numbered.order(rows), lengths).max())


def _listed(
    numbered: Numbered, number_at: Index, lengths: Array, message: float
) -> tuple[list[int], Array]:
    """The order of all ranks, and when actions of so many seconds each end.

    Actions take turns: `number_at` is whose turn it is, the most urgent one's first.
    """
    turn = np.append(np.empty_like(number_at), -1)  # the last that of what makes nothing possible
    turn[number_at] = np.arange(len(number_at))
    rank, queues, limits = numbered.rank[number_at], numbered.queues, np.array(numbered.work.limits)
    columns = rank, turn[numbered.follower[number_at]], numbered.queue[number_at]
    loops = PACE.loops(len(number_at), int(queues.max()) + 1)
    more = lengths[number_at], queues, limits
    started, ends = loops.listed((*columns, *more), turn[numbered.first], message)
    by_rank = started[np.argsort(rank[started], kind="stable")]
    order: list[int] = number_at[by_rank].tolist()
    return order, ends[turn[:-1]]
