"""Orders found by list scheduling: each free rank takes the most urgent action that can run.

    rank 1 is free at 4      1F2 can run since 3      1B0 can run since 4      most urgent: 1B0

What is urgent is a matter of the schedule. Memory is bounded: a rank never holds more chunks of
micro-batches than its limit. Of that limit, a forward leaves a chunk free for each deeper stage of
the same rank, so that whatever has begun can go on to the loss and come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

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
    tried = list[tuple[float, list[list[int]]]]()
    for ratio in RATIOS:
        lengths = [ratio if backward else 1.0 for backward in numbered.backward]
        for message in dict.fromkeys((0.0, work.message)):
            order, ends = _Listing(numbered).run(lengths, message)
            if all(order != other for _, other in tried):
                if (lengths, message) != (durations, work.message):
                    ends = numbered.ends(order, durations)
                tried.append((max(ends), order))
    if turned and min(tried)[0] > enough * (1.0 + ROUNDING):
        urgency = [-float(backward) for backward in numbered.backward]
        begin = [min(tried)[1], _Listing(numbered, urgency).run(durations, work.message).order]
        tried += [_turned(numbered, each, turned // len(begin), enough) for each in begin]
    length, order = min(tried, key=lambda each: each[0])
    return Ordered(rows=numbered.rows(order), makespan=length)


def _turned(
    numbered: Numbered, order: list[list[int]], actions: int, enough: float
) -> tuple[float, list[list[int]]]:
    """The shortest order on the way from one that is listed anew from its end, and again.

    What ended last is the most urgent backwards in time, where a B is a forward and an F its
    backward, and what began first the most urgent then. Source: forward-backward improvement of
    project schedules, Li and Willis 1992; Valls, Ballestin and Quintanilla 2005.
    """
    work, mirror = numbered.work, numbered.mirrored()
    ahead = numbered.lengths(work.forward, work.backward)
    back = numbered.lengths(work.backward, work.forward)
    ends, waited = numbered.ends(order, ahead), 0
    best = max(ends), order
    for _ in range(actions // (2 * len(ahead))):
        for lengths in (back, ahead):
            urgency = [-ends[number] for number in mirror]
            listed, ends = _Listing(numbered, urgency).run(lengths, work.message)
        length = max(ends)
        waited = 0 if length < best[0] * (1.0 - ROUNDING) else waited + 1
        best = best if waited else (length, listed)
        if waited == PATIENT or best[0] <= enough * (1.0 + ROUNDING):
            break
    return best


def makespan(work: Work, rows: Rows) -> float:
    """When the last action of an order ends, which is `inf` where some rank never goes on."""
    numbered = Numbered.of(work)
    lengths = numbered.lengths(work.forward, work.backward)
    return numbered.makespan(numbered.order(rows), lengths)


class Listed(NamedTuple):
    """The order of each rank, and when each action of it ends."""

    order: list[list[int]]
    ends: list[float]


class _Agenda(dict[float, list[int]]):
    """What happens at each of the `times` to come, which are a heap."""

    def __init__(self) -> None:
        """Nothing happens yet."""
        super().__init__()
        self.times: list[float] = []

    def __missing__(self, time: float) -> list[int]:
        """A time at which nothing happens yet."""
        heappush(self.times, time)
        self[time] = happens = list[int]()
        return happens


class _Listing:
    """List scheduling of numbered actions: what each rank could run, holds and has run.

    Actions are turns here, by `urgency`, the least first; `number_at` says whose turn it is.
    `queues` are the turns that wait in each of a rank's queues, `waiting` the one of those in which
    a turn waits, whose `bit` of `filled` says that some do. A turn of the `agenda` ends, ~turn can
    run from then on. `ends` are those of turns.
    """

    def __init__(self, numbered: Numbered, urgency: Sequence[float] = ()) -> None:
        """Take over the actions; without `urgency` in the order of their numbers."""
        numbers = range(len(numbered.stage))
        self.number_at = sorted(numbers, key=urgency.__getitem__) if urgency else [*numbers]
        turn = [0] * (len(numbers) + 1)
        for position, number in enumerate(self.number_at):
            turn[number] = position
        turn[-1] = -1  # that of what makes nothing possible
        self.rank = [numbered.rank[number] for number in self.number_at]
        self.follower = [turn[numbered.follower[number]] for number in self.number_at]
        self.backwards, count = numbered.queues, len(numbered.queues)
        self.queues: list[list[list[int]]] = [[[] for _ in range(q + 1)] for q in self.backwards]
        queue = [numbered.queue[number] for number in self.number_at]
        self.bit = [1 << q for q in queue]
        self.waiting = [self.queues[rank][q] for rank, q in zip(self.rank, queue, strict=True)]
        self.filled, self.room = [0] * count, list(numbered.work.limits)
        self.busy = [False] * count
        self.order: list[list[int]] = [[] for _ in range(count)]
        self.ends = [inf] * len(numbers)
        self.agenda = _Agenda()
        self.agenda[0.0] += [~turn[number] for number in numbered.first]

    def run(self, lengths: Sequence[float], message: float) -> Listed:
        """The order of each rank, and when actions of so many seconds each end."""
        number_at, agenda = self.number_at, self.agenda
        of_turns = [lengths[number] for number in number_at]
        while agenda.times:
            clock = heappop(agenda.times)
            self._start(self._noted(clock, message), clock, of_turns)
        ends = [inf] * len(number_at)
        for number, end in zip(number_at, self.ends, strict=True):
            ends[number] = end
        return Listed([[number_at[turn] for turn in row] for row in self.order], ends)

    def _noted(self, clock: float, message: float) -> list[int]:
        """The ranks that are free again, or could run something more, since this moment.

        What has ended makes the next action possible, on another rank when its message has come.
        """
        rank_of, follower, waiting = self.rank, self.follower, self.waiting
        busy, filled, bit, touched = self.busy, self.filled, self.bit, list[int]()
        for event in self.agenda.pop(clock):
            turn = ~event
            if event >= 0:
                rank, turn = rank_of[event], follower[event]
                busy[rank] = False
                touched.append(rank)
                if turn < 0:
                    continue
                if message and rank_of[turn] != rank:
                    self.agenda[clock + message].append(~turn)
                    continue
            rank = rank_of[turn]
            heappush(waiting[turn], turn)
            filled[rank] |= bit[turn]
            touched.append(rank)
        return touched

    def _start(self, ranks: Sequence[int], clock: float, lengths: Sequence[float]) -> None:
        """Let ranks start the most urgent they may run: a forward only while they have room."""
        filled, rooms, busy, backwards = self.filled, self.room, self.busy, self.backwards
        queues, order, ends, agenda = self.queues, self.order, self.ends, self.agenda
        for rank in ranks:
            ready, room, back = filled[rank], rooms[rank], backwards[rank]
            if room < back:
                ready &= 1 << back | (1 << room) - 1
            if busy[rank] or not ready:
                continue
            queue = ready.bit_length() - 1
            if ready & (ready - 1):
                queue = self._first(queues[rank], ready)
            turns = queues[rank][queue]
            turn = heappop(turns)
            if not turns:
                filled[rank] ^= 1 << queue
            order[rank].append(turn)
            busy[rank] = True
            rooms[rank] = room + 1 if queue == back else room - 1
            ends[turn] = end = clock + lengths[turn]
            agenda[end].append(turn)

    @staticmethod
    def _first(queues: list[list[int]], ready: int) -> int:
        """The queue with the most urgent action, of those whose bits are there."""
        best = (ready & -ready).bit_length() - 1
        while ready := ready & (ready - 1):
            queue = (ready & -ready).bit_length() - 1
            if queues[queue][0] < queues[best][0]:
                best = queue
        return best
