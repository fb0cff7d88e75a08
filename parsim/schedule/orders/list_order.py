"""Orders found by list scheduling: each free rank takes the most urgent action that can run.

    rank 1 is free at 4      1F2 can run since 3      1B0 can run since 4      most urgent: 1B0

What is urgent is a matter of the schedule. Memory is bounded: a rank never holds more chunks of
micro-batches than its limit. Of that limit, a forward leaves a chunk free for each deeper stage of
the same rank, so that whatever has begun can go on to the loss and come back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.weight_fill import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What has to be ordered: stages on ranks, micro-batches through copies, lengths, limits.

    `forward` and `backward` are lengths of each stage's F and B, `message` that of a message
    between ranks; `limits` are the chunks that each rank may hold from F to B. Where the backward
    is in two, `backward` are lengths of I, `weight` those of W, and a chunk is held to its W.
    """

    stage_rank: Sequence[int]
    num_microbatches: int
    forward: Sequence[float]
    backward: Sequence[float]
    limits: Sequence[int]
    message: float = 0.0
    copies: int = 1
    weight: Sequence[float] = ()

    @property
    def depth(self) -> int:
        """Stages that a micro-batch goes through."""
        return len(self.stage_rank) // self.copies

    def length(self, action: Action) -> float:
        """How long an action takes."""
        return (self.forward if action.kind == Kind.F else self.backward)[action.stage]

    def next_of(self, action: Action) -> Action | None:
        """The action that an action's result makes possible: on to the loss and back again."""
        stage, kind, mb = action
        if kind == Kind.F:
            ends = stage % self.depth == self.depth - 1
            return Action(stage, Kind.B, mb) if ends else Action(stage + 1, Kind.F, mb)
        return None if stage % self.depth == 0 else Action(stage - 1, Kind.B, mb)

    def first_actions(self) -> list[Action]:
        """The forwards that need nothing: the first stage of each copy, on its micro-batches."""
        return [
            Action(copy * self.depth, Kind.F, mb)
            for copy in range(self.copies)
            for mb in self.microbatches_of(copy)
        ]

    def microbatches_of(self, copy: int) -> range:
        """The micro-batches that go through a copy."""
        m, copies = self.num_microbatches, self.copies
        return range(copy * m // copies, (copy + 1) * m // copies)

    def all_actions(self) -> Iterator[Action]:
        """Every F and B of every stage."""
        for stage in range(len(self.stage_rank)):
            for mb in self.microbatches_of(stage // self.depth):
                yield Action(stage, Kind.F, mb)
                yield Action(stage, Kind.B, mb)

    def urgency(self, action: Action) -> tuple[int, int, int, int]:
        """Sorts actions: forwards, the deepest first; backwards, those of early micro-batches."""
        stage, kind, mb = action
        depth, mb = stage % self.depth, mb % max(1, self.num_microbatches // self.copies)
        return (0, -depth, mb, stage) if kind == Kind.F else (1, mb, -depth, stage)

    def stages_by_depth(self, rank: int) -> list[int]:
        """The stages of a rank, the deepest of its copy first."""
        stages = [stage for stage, where in enumerate(self.stage_rank) if where == rank]
        return sorted(stages, key=lambda stage: -(stage % self.depth))


@dataclass(frozen=True, slots=True)
class Ordered:
    """The rows that were found, and when the last action ends."""

    rows: Rows
    makespan: float


@dataclass(frozen=True, slots=True)
class _Numbered:
    """The work's actions by urgency, the most urgent first; an action is its number from here on.

    Forwards go before backwards, the deepest first: what has begun comes to its loss soonest.

    Of each: the rank that runs it, the queue in which it waits there (forwards of each of the
    rank's stages, the deepest first, then backwards), and the action that its result makes
    possible, -1 for none. `queues` are how many of forwards each rank has.
    """

    actions: list[Action]
    rank: list[int]
    queue: list[int]
    follower: list[int]
    first: list[int]
    queues: list[int]

    @classmethod
    def of(cls, work: Work) -> _Numbered:
        """Number the actions of some work.

        Raises:
            ScheduleError: a rank's limit is below the number of its stages.
        """
        actions = sorted(work.all_actions(), key=work.urgency)
        number = {action: index for index, action in enumerate(actions)}
        queues, queue_of = [0] * (max(work.stage_rank) + 1), {}
        for rank in range(len(queues)):
            stages = work.stages_by_depth(rank)
            _check_limit(work, rank, len(stages))
            queues[rank] = len(stages)
            queue_of.update({stage: index for index, stage in enumerate(stages)})
        followers, on_rank = map(work.next_of, actions), work.stage_rank
        return cls(
            actions=actions,
            rank=[on_rank[stage] for stage, _, _ in actions],
            queue=[queue_of[s] if kind == Kind.F else queues[on_rank[s]] for s, kind, _ in actions],
            follower=[-1 if after is None else number[after] for after in followers],
            first=[number[action] for action in work.first_actions()],
            queues=queues,
        )

    def rows(self, order: list[list[int]]) -> Rows:
        """The actions of each rank by their numbers."""
        return tuple(tuple(self.actions[number] for number in row) for row in order)


def _check_limit(work: Work, rank: int, stages: int) -> None:
    if work.limits[rank] < stages:
        raise ScheduleError(
            f"a limit of {work.limits[rank]} chunks in flight on rank {rank} is too small for "
            f"its {stages} stages; allowed: {stages} and more"
        )


class _Listing:
    """List scheduling of numbered actions: what each rank could run, holds and has run.

    `waiting` are the actions of each of a rank's queues, and bit q of `filled` says that its queue
    q has some. `events` are what happens at each of the `times` to come: a number that can run, or
    ~rank where a rank is free again.
    """

    def __init__(self, work: Work, numbered: _Numbered) -> None:
        self.work, self.numbered, count = work, numbered, len(numbered.queues)
        self.waiting: list[list[list[int]]] = [[[] for _ in range(q + 1)] for q in numbered.queues]
        self.filled = [0] * count
        self.room = list(work.limits)
        self.busy = [False] * count
        self.order: list[list[int]] = [[] for _ in range(count)]
        self.events: dict[float, list[int]] = {0.0: list(numbered.first)}
        self.times = [0.0]

    def run(self, lengths: Sequence[float], message: float) -> tuple[list[list[int]], float]:
        """The order of each rank and when the last action ends."""
        rank_of, follower = self.numbered.rank, self.numbered.follower
        clock = 0.0
        while self.times:
            clock = heapq.heappop(self.times)
            for rank in sorted(self._noted(self.events.pop(clock))):
                number = -1 if self.busy[rank] else self._take(rank)
                if number < 0:
                    continue
                end, after = clock + lengths[number], follower[number]
                self._at(end, ~rank)
                if after >= 0:
                    self._at(end if rank_of[after] == rank else end + message, after)
        return self.order, clock

    def _at(self, time: float, number: int) -> None:
        """Let something happen at a time."""
        if time in self.events:
            self.events[time].append(number)
        else:
            self.events[time] = [number]
            heapq.heappush(self.times, time)

    def _noted(self, events: Sequence[int]) -> set[int]:
        """The ranks that are free again, or could run something more, since this moment."""
        touched, busy, waiting = set(), self.busy, self.waiting
        rank_of, queue_of = self.numbered.rank, self.numbered.queue
        for number in events:
            if number < 0:
                rank = ~number
                busy[rank] = False
            else:
                rank = rank_of[number]
                heapq.heappush(waiting[rank][queue_of[number]], number)
                self.filled[rank] |= 1 << queue_of[number]
            touched.add(rank)
        return touched

    def _take(self, rank: int) -> int:
        """Start the most urgent action that a rank may run now: a forward only while it has room.

        -1 where there is none.
        """
        backwards = self.numbered.queues[rank]
        may_run = 1 << backwards | (1 << min(backwards, self.room[rank])) - 1
        ready = self.filled[rank] & may_run
        if not ready:
            return -1
        queue = (ready & -ready).bit_length() - 1
        number = heapq.heappop(self.waiting[rank][queue])
        if not self.waiting[rank][queue]:
            self.filled[rank] ^= 1 << queue
        self.order[rank].append(number)
        self.busy[rank] = True
        self.room[rank] += 1 if queue == backwards else -1
        return number


RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0)
"""Lengths of a backward, that of a forward being 1, for which an order is tried."""


def best_order(work: Work) -> Ordered:
    """The shortest of the orders that list scheduling finds for several lengths of backwards.

    The limit makes ranks take backwards. Orders are listed with the work's messages and as if these
    took no time: the shortest may be either.

    Raises:
        ScheduleError: a rank's limit is below the number of its stages.
    """
    numbered = _Numbered.of(work)
    durations = [work.length(action) for action in numbered.actions]
    tried = []
    for ratio in RATIOS:
        lengths = [1.0 if action.kind == Kind.F else ratio for action in numbered.actions]
        for message in dict.fromkeys((0.0, work.message)):
            order, _ = _Listing(work, numbered).run(lengths, message)
            tried.append((_makespan(work, numbered, order, durations), order))
    length, order = min(tried, key=lambda each: each[0])
    return Ordered(rows=numbered.rows(order), makespan=length)


def makespan(work: Work, rows: Rows) -> float:
    """When the last action of an order ends, which is `inf` where some rank never goes on."""
    numbered = _Numbered.of(work)
    number = {action: index for index, action in enumerate(numbered.actions)}
    lengths = [work.length(action) for action in numbered.actions]
    return _makespan(work, numbered, [[number[action] for action in row] for row in rows], lengths)


def _makespan(
    work: Work, numbered: _Numbered, order: list[list[int]], lengths: Sequence[float]
) -> float:
    """`makespan` of numbered actions."""
    ready: list[float | None] = [None] * len(lengths)
    for number in numbered.first:
        ready[number] = 0.0
    clock, at = [0.0] * len(order), [0] * len(order)
    waiting: dict[int, int] = {}
    going = list(range(len(order)))
    while going:
        rank = going.pop()
        row, now = order[rank], clock[rank]
        while at[rank] < len(row):
            number = row[at[rank]]
            arrival = ready[number]
            if arrival is None:
                waiting[number] = rank
                break
            now = max(now, arrival) + lengths[number]
            at[rank] += 1
            after = numbered.follower[number]
            if after >= 0:
                near = numbered.rank[after] == rank
                ready[after] = now if near else now + work.message
                if after in waiting:
                    going.append(waiting.pop(after))
        clock[rank] = now
    return inf if waiting else max(clock)
