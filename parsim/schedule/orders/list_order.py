"""Orders found by list scheduling: each free rank takes the most urgent action that can run.

    rank 1 is free at 4      1F2 can run since 3      1B0 can run since 4      most urgent: 1B0

What is urgent is a matter of the schedule. Memory is bounded: a rank never holds more chunks of
micro-batches than its limit. Of that limit, a forward leaves a chunk free for each deeper stage of
the same rank, so that whatever has begun can go on to the loss and come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

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
            order = _Listing(numbered).run(lengths, message)
            if all(order != other for _, other in tried):
                tried.append((numbered.makespan(order, durations), order))
    if turned and min(tried)[0] > enough * (1.0 + ROUNDING):
        urgency = [-float(backward) for backward in numbered.backward]
        order = _Listing(numbered, urgency).run(durations, work.message)
        begin = [min(tried), (numbered.makespan(order, durations), order)]
        tried += [_turned(numbered, each, turned // len(begin), enough) for _, each in begin]
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
    best = numbered.makespan(order, ahead), order
    ends, waited = numbered.ends(order, ahead), 0
    for _ in range(actions // (2 * len(ahead))):
        for lengths in (back, ahead):
            urgency = [-ends[number] for number in mirror]
            listed = _Listing(numbered, urgency).run(lengths, work.message)
            ends = numbered.ends(listed, lengths)
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


class _Listing:
    """List scheduling of numbered actions: what each rank could run, holds and has run.

    `waiting` are the actions of each of a rank's queues, and bit q of `filled` says that its queue
    q has some. `events` are what happens at each of the `times` to come: a number that ends, or
    ~number where an action can run.
    """

    def __init__(self, numbered: Numbered, urgency: Sequence[float] = ()) -> None:
        """Take over the actions, the least `urgency` first (none: in the order of their numbers).

        Queues hold turns in that order, `number_at` says whose turn it is.
        """
        numbers = range(len(numbered.stage))
        self.number_at = sorted(numbers, key=urgency.__getitem__) if urgency else [*numbers]
        self.turn = [0] * len(self.number_at)
        for turn, number in enumerate(self.number_at):
            self.turn[number] = turn
        self.numbered, count = numbered, len(numbered.queues)
        self.waiting: list[list[list[int]]] = [[[] for _ in range(q + 1)] for q in numbered.queues]
        self.filled = [0] * count
        self.room = list(numbered.work.limits)
        self.busy = [False] * count
        self.order: list[list[int]] = [[] for _ in range(count)]
        self.events: dict[float, list[int]] = {0.0: [~number for number in numbered.first]}
        self.times = [0.0]

    def run(self, lengths: Sequence[float], message: float) -> list[list[int]]:
        """The order of each rank."""
        while self.times:
            clock = heappop(self.times)
            for rank in self._noted(clock, message):
                number = -1 if self.busy[rank] else self._take(rank)
                if number >= 0:
                    self._at(clock + lengths[number], number)
        return self.order

    def _at(self, time: float, event: int) -> None:
        """Let something happen at a time."""
        events = self.events.get(time)
        if events is None:
            self.events[time] = [event]
            heappush(self.times, time)
        else:
            events.append(event)

    def _noted(self, clock: float, message: float) -> set[int]:
        """The ranks that are free again, or could run something more, since this moment.

        What has ended makes the next action possible, on another rank when its message has come.
        """
        touched, busy, waiting, filled = set(), self.busy, self.waiting, self.filled
        rank_of, queue_of = self.numbered.rank, self.numbered.queue
        follower, turn = self.numbered.follower, self.turn
        for event in self.events.pop(clock):
            if event >= 0:
                rank = rank_of[event]
                busy[rank] = False
                touched.add(rank)
                number = follower[event]
                if number < 0:
                    continue
                if message and rank_of[number] != rank:
                    self._at(clock + message, ~number)
                    continue
            else:
                number = ~event
            rank, queue = rank_of[number], queue_of[number]
            heappush(waiting[rank][queue], turn[number])
            filled[rank] |= 1 << queue
            touched.add(rank)
        return touched

    def _take(self, rank: int) -> int:
        """Start the most urgent action that a rank may run now: a forward only while it has room.

        -1 where there is none.
        """
        backwards, room = self.numbered.queues[rank], self.room[rank]
        may_run = 1 << backwards | (1 << (backwards if backwards < room else room)) - 1
        ready = self.filled[rank] & may_run
        if not ready:
            return -1
        waiting, queue = self._first(self.waiting[rank], ready)
        number = self.number_at[heappop(waiting)]
        if not waiting:
            self.filled[rank] ^= 1 << queue
        self.order[rank].append(number)
        self.busy[rank] = True
        self.room[rank] = room + (1 if queue == backwards else -1)
        return number

    @staticmethod
    def _first(queues: list[list[int]], ready: int) -> tuple[list[int], int]:
        """The queue with the most urgent action, of those whose bits are there."""
        best = (ready & -ready).bit_length() - 1
        while ready := ready & (ready - 1):
            queue = (ready & -ready).bit_length() - 1
            if queues[queue][0] < queues[best][0]:
                best = queue
        return queues[best], best
