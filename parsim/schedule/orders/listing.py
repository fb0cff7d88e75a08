"""The loops of list scheduling over flat columns, one source for Python and for numba.

Actions are turns here, by urgency, the least first. `loops.py` says when the same functions run
compiled: columns are arrays then and lists else, and what the loops make themselves are lists of
numbers for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import frexp, inf

from parsim.arrays import Array, Index

Numbers = Sequence[int] | Index
Lengths = Sequence[float] | Array


def list_turns(  # noqa: PLR0913  numba takes columns one by one
    rank: Numbers,
    follower: Numbers,
    queue: Numbers,
    length: Lengths,
    backs: Numbers,
    limits: Numbers,
    first: Numbers,
    message: float,
    started: list[int],
    ends: list[float],
) -> None:
    """List turns: write them into `started` as they start, and when they end into `ends`.

    Of a turn: its rank, the turn that its result makes possible (-1: none), the queue in which it
    waits on its rank, its length. Of a rank: the queue of its backwards, which is its last, and how
    many chunks it may hold. Turns of `first` can run at once. `waiting` are the turns of all ranks'
    queues, as heaps, the bits of `filled` say in which of a rank's queues some wait. A rank that is
    not busy is free at `inf`.
    """
    ranks, stride = len(backs), 1
    for back in backs:
        stride = max(stride, back + 1)
    waiting = [[0 for _ in range(0)] for _ in range(ranks * stride)]
    filled, busy = [0 for _ in range(ranks)], [0 for _ in range(ranks)]
    room, free = [limit for limit in limits], [inf for _ in range(ranks)]
    sent, arrival = [0 for _ in range(0)], [0.0 for _ in range(0)]
    touched, clock, count, at = [0 for _ in range(0)], 0.0, 0, 0
    for turn in first:
        touched.append(wait(turn, rank[turn], queue[turn], stride, waiting, filled))
    while clock < inf:
        count = start(touched, clock, stride, length, backs, waiting, filled, room, free, busy,
                      started, count, ends)  # fmt: skip
        clock = inf
        for end in free:
            clock = min(clock, end)
        if at < len(sent):
            clock = min(clock, arrival[at])
        touched = finish(clock, message, stride, rank, follower, queue, waiting, filled, free, busy,
                         sent, arrival)  # fmt: skip
        while at < len(sent) and arrival[at] <= clock:
            turn, at = sent[at], at + 1
            touched.append(wait(turn, rank[turn], queue[turn], stride, waiting, filled))


def wait(
    turn: int, rank: int, queue: int, stride: int, waiting: list[list[int]], filled: list[int]
) -> int:
    """Let a turn wait, and return its rank."""
    heappush(waiting[rank * stride + queue], turn)
    filled[rank] |= 1 << queue
    return rank


def start(  # noqa: PLR0913  numba takes columns one by one
    ranks: list[int],
    clock: float,
    stride: int,
    length: Lengths,
    backs: Numbers,
    waiting: list[list[int]],
    filled: list[int],
    room: list[int],
    free: list[float],
    busy: list[int],
    started: list[int],
    count: int,
    ends: list[float],
) -> int:
    """Let ranks start the most urgent they may run: a forward only while they have room."""
    for rank in ranks:
        ready, space, back = filled[rank], room[rank], backs[rank]
        if space < back:
            ready &= 1 << back | (1 << space) - 1
        if ready == 0 or free[rank] < inf:
            continue
        base = rank * stride
        queue = most_urgent(waiting, base, ready)
        turn = heappop(waiting[base + queue])
        if len(waiting[base + queue]) == 0:
            filled[rank] ^= 1 << queue
        room[rank] = space + 1 if queue == back else space - 1
        started[count], count, busy[rank] = turn, count + 1, turn
        ends[turn] = free[rank] = clock + length[turn]
    return count


def most_urgent(waiting: list[list[int]], base: int, ready: int) -> int:
    """The queue with the most urgent turn, of those whose bits are there."""
    best = frexp(ready & -ready)[1] - 1
    ready &= ready - 1
    while ready != 0:
        queue = frexp(ready & -ready)[1] - 1
        if waiting[base + queue][0] < waiting[base + best][0]:
            best = queue
        ready &= ready - 1
    return best


def finish(  # noqa: PLR0913  numba takes columns one by one
    clock: float,
    message: float,
    stride: int,
    rank: Numbers,
    follower: Numbers,
    queue: Numbers,
    waiting: list[list[int]],
    filled: list[int],
    free: list[float],
    busy: list[int],
    sent: list[int],
    arrival: list[float],
) -> list[int]:
    """Free the ranks whose turns end now; those that could start something since.

    What has ended makes the next turn possible, on another rank when its message has come.
    """
    touched = [0 for _ in range(0)]
    for at in range(len(free)):
        if free[at] > clock or clock == inf:
            continue
        free[at] = inf
        touched.append(at)
        turn = follower[busy[at]]
        if turn >= 0 and message > 0.0 and rank[turn] != at:
            sent.append(turn)
            arrival.append(clock + message)
        elif turn >= 0:
            touched.append(wait(turn, rank[turn], queue[turn], stride, waiting, filled))
    return touched


def end_all(
    order: Numbers,
    bounds: Numbers,
    rank: Numbers,
    follower: Numbers,
    length: Lengths,
    first: Numbers,
    message: float,
    ends: list[float],
) -> None:
    """Write into `ends` when each action ends, which stays `inf` where its rank never comes to it.

    `order` are the actions of all ranks, one rank after another between `bounds`.
    """
    ready = [inf for _ in range(len(length))]
    for action in first:
        ready[action] = 0.0
    at, clock = [bound for bound in bounds], [0.0 for _ in range(len(bounds) - 1)]
    going = [number for number in range(len(bounds) - 1)]
    waiting = [-1 for _ in range(len(length))]
    while len(going) > 0:
        number = going.pop()
        now = clock[number]
        while at[number] < bounds[number + 1]:
            action = order[at[number]]
            if ready[action] == inf:
                waiting[action] = number
                break
            now = max(now, ready[action]) + length[action]
            ends[action], at[number], after = now, at[number] + 1, follower[action]
            if after >= 0:
                ready[after] = now if rank[after] == number else now + message
                if waiting[after] >= 0:
                    going.append(waiting[after])
        clock[number] = now
