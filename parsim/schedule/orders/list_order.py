"""Orders found by list scheduling: each free rank takes the most urgent action that can run.

    rank 1 is free at 4      1F2 can run since 3      1B0 can run since 4      most urgent: 1B0

What is urgent is a matter of the schedule. Memory is bounded: a rank never holds more chunks of
micro-batches than its limit. Of that limit, a forward leaves a chunk free for each deeper stage of
the same rank, so that whatever has begun can go on to the loss and come back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.weight_fill import Rows

Priority = Callable[[Action], tuple[float, ...]]
"""What is taken first: the action with the least."""

_Queue = list[tuple[tuple[float, ...], Action]]
"""A heap of actions behind their priorities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What has to be ordered: stages on ranks, micro-batches through copies, lengths, limits.

    `forward` and `backward` are lengths of each stage's F and B, `message` that of a message
    between ranks; `limits` are the chunks that each rank may hold from F to B.
    """

    stage_rank: Sequence[int]
    num_microbatches: int
    forward: Sequence[float]
    backward: Sequence[float]
    limits: Sequence[int]
    message: float = 0.0
    copies: int = 1

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
        m, copies = self.num_microbatches, self.copies
        return [
            Action(copy * self.depth, Kind.F, mb)
            for copy in range(copies)
            for mb in range(copy * m // copies, (copy + 1) * m // copies)
        ]

    def stages_by_depth(self, rank: int) -> list[int]:
        """The stages of a rank, the deepest of its copy first."""
        held = [stage for stage, where in enumerate(self.stage_rank) if where == rank]
        return sorted(held, key=lambda stage: -(stage % self.depth))


@dataclass(slots=True)
class _Rank:
    """What a rank could run, what it has run, the chunks it holds, and whether it is busy.

    `forwards` has a queue for each of its stages, the deepest first.
    """

    limit: int
    forwards: dict[int, _Queue]
    backwards: _Queue = field(default_factory=list)
    row: list[Action] = field(default_factory=list)
    holds: int = 0
    busy: bool = False

    def open_queues(self) -> Iterator[_Queue]:
        """The queues from which it may take now: backwards, and forwards while there is room."""
        if self.backwards:
            yield self.backwards
        for deeper, queue in enumerate(self.forwards.values()):
            if queue and self.holds + deeper < self.limit:
                yield queue


@dataclass(frozen=True, slots=True)
class Ordered:
    """The rows that were found, and when the last action ends."""

    rows: Rows
    makespan: float


def list_order(work: Work, priority: Priority) -> Ordered:
    """Order the actions of every rank.

    Raises:
        ScheduleError: a rank's limit is below the number of its stages.
    """
    ranks = [_rank(work, number) for number in range(max(work.stage_rank) + 1)]
    events: list[tuple[float, int, Action | None, int]] = []
    count = 0
    for action in work.first_actions():
        heapq.heappush(events, (0.0, count, action, work.stage_rank[action.stage]))
        count += 1
    clock = 0.0
    while events:
        clock = events[0][0]
        touched = set()
        while events and events[0][0] <= clock:
            _, _, ready, number = heapq.heappop(events)
            _note(ranks[number], ready, priority)
            touched.add(number)
        for number in sorted(touched):
            action_taken = _take(ranks[number])
            if action_taken is None:
                continue
            for when, ready, target in _events(work, action_taken, number, clock):
                heapq.heappush(events, (when, count, ready, target))
                count += 1
    return Ordered(rows=tuple(tuple(rank.row) for rank in ranks), makespan=clock)


def _rank(work: Work, number: int) -> _Rank:
    stages = work.stages_by_depth(number)
    if work.limits[number] < len(stages):
        raise ScheduleError(
            f"a limit of {work.limits[number]} chunks in flight on rank {number} is too small for "
            f"its {len(stages)} stages; allowed: {len(stages)} and more"
        )
    return _Rank(limit=work.limits[number], forwards={stage: [] for stage in stages})


def _note(rank: _Rank, ready: Action | None, priority: Priority) -> None:
    """An action can run from now on, or (None) the rank is free again."""
    if ready is None:
        rank.busy = False
        return
    queue = rank.forwards[ready.stage] if ready.kind == Kind.F else rank.backwards
    heapq.heappush(queue, (priority(ready), ready))


def _take(rank: _Rank) -> Action | None:
    """Start the most urgent action that the rank may run now, if there is one."""
    queue = None if rank.busy else min(rank.open_queues(), key=lambda queue: queue[0], default=None)
    if queue is None:
        return None
    _, action = heapq.heappop(queue)
    rank.row.append(action)
    rank.busy = True
    rank.holds += 1 if action.kind == Kind.F else -1
    return action


def _events(
    work: Work, action: Action, number: int, clock: float
) -> Iterator[tuple[float, Action | None, int]]:
    """When the rank is free again, and when whom the result makes ready."""
    end = clock + work.length(action)
    yield end, None, number
    follower = work.next_of(action)
    if follower is not None:
        target = work.stage_rank[follower.stage]
        yield (end if target == number else end + work.message), follower, target


RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0)
"""Lengths of a backward, that of a forward being 1, for which an order is tried."""


def best_order(work: Work) -> Ordered:
    """The shortest of the orders that list scheduling finds for several lengths of backwards.

    Forwards go before backwards, the deepest first: what has begun comes to its loss soonest, and
    the limit makes ranks take backwards, those of the earliest micro-batches first.

    Raises:
        ScheduleError: see `list_order`.
    """
    share = max(1, work.num_microbatches // work.copies)

    def priority(action: Action) -> tuple[float, ...]:
        place, mb = action.stage % work.depth, action.microbatch % share
        return (0, -place, mb) if action.kind == Kind.F else (1, mb, -place)

    stages = len(work.stage_rank)
    tried = []
    for ratio in RATIOS:
        alike = replace(work, forward=[1.0] * stages, backward=[ratio] * stages)
        rows = list_order(alike, priority).rows
        tried.append(Ordered(rows=rows, makespan=makespan(work, rows)))
    return min(tried, key=lambda ordered: ordered.makespan)


def makespan(work: Work, rows: Rows) -> float:
    """When the last action of an order ends, which is `inf` where some rank never goes on."""
    ready = {action: 0.0 for action in work.first_actions()}
    clock, at = [0.0] * len(rows), [0] * len(rows)
    waiting: dict[Action, int] = {}
    going = list(range(len(rows)))
    while going:
        rank = going.pop()
        row, now = rows[rank], clock[rank]
        while at[rank] < len(row):
            action = row[at[rank]]
            arrival = ready.get(action)
            if arrival is None:
                waiting[action] = rank
                break
            now = max(now, arrival) + work.length(action)
            at[rank] += 1
            follower = work.next_of(action)
            if follower is not None:
                target = work.stage_rank[follower.stage]
                ready[follower] = now if target == rank else now + work.message
                if follower in waiting:
                    going.append(waiting.pop(follower))
        clock[rank] = now
    return inf if waiting else max(clock)
