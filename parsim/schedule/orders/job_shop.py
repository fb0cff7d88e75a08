"""A pipeline as a job shop: sequences of forwards and backwards, how long they take, what may swap.

rank 0   F F F B F B B      the k-th F is of micro-batch k, and so is the k-th B
rank 1   F B F B F B
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.list_order import Work
from parsim.schedule.orders.weight_fill import Rows

ROUNDING = 1e-9

Turns = list[list[bool]]
"""Whether the next action of each rank is a forward."""

Key = tuple[int, bool, int]
"""Rank, whether forward, micro-batch."""


@dataclass(slots=True)
class Timed:
    """Ends of all actions by (rank, kind, micro-batch), what each waited for, and the last end."""

    ends: dict[Key, float]
    starts: dict[Key, float]
    makespan: float


class Shop:
    """The job shop of a pipeline: lengths, limits, and how long sequences of turns take."""

    def __init__(self, work: Work) -> None:
        """Take over the work.

        Raises:
            ScheduleError: several stages a rank, or a limit below 1.
        """
        self.p, self.m, self.message = len(work.stage_rank), work.num_microbatches, work.message
        if tuple(work.stage_rank) != tuple(range(self.p)) or work.copies != 1:
            raise ScheduleError("an order is searched for with stage r on rank r alone")
        if min(work.limits) < 1:
            raise ScheduleError(
                f"limits {list(work.limits)} of micro-batches in flight: allowed are 1 and more"
            )
        self.forward, self.backward, self.limits = work.forward, work.backward, work.limits

    def turns(self, rows: Rows) -> Turns:
        """The sequence of each rank's forwards and backwards."""
        return [[kind == Kind.F for _, kind, _ in row] for row in rows]

    def rows(self, turns: Turns) -> Rows:
        """The actions of sequences, micro-batches in their order."""
        return tuple(tuple(self._row(rank, turn)) for rank, turn in enumerate(turns))

    def _row(self, rank: int, turn: Sequence[bool]) -> Iterable[Action]:
        done = {True: 0, False: 0}
        for ahead in turn:
            yield Action(rank, Kind.F if ahead else Kind.B, done[ahead])
            done[ahead] += 1

    def within_limits(self, turns: Turns) -> bool:
        """Whether no rank ever holds more micro-batches than its limit."""
        for turn, limit in zip(turns, self.limits, strict=True):
            live = 0
            for ahead in turn:
                live += 1 if ahead else -1
                if live > limit:
                    return False
        return True

    def timed(self, turns: Turns) -> Timed:
        """When all actions start and end; an order that never ends takes `inf`."""
        p, message, last = self.p, self.message, self.p - 1
        ends: dict[Key, float] = {}
        starts: dict[Key, float] = {}
        at, clock = [0] * p, [0.0] * p
        done = [[0, 0] for _ in range(p)]
        going = list(range(p))
        waiting: dict[Key, int] = {}
        while going:
            rank = going.pop()
            turn = turns[rank]
            while at[rank] < len(turn):
                ahead = turn[at[rank]]
                mb = done[rank][ahead]
                arrival = 0.0
                if (ahead and rank) or not ahead:
                    source = (rank - 1, True, mb) if ahead else (rank + 1, False, mb)
                    same = not ahead and rank == last
                    source = (rank, True, mb) if same else source
                    if source not in ends:
                        waiting[source] = rank
                        break
                    arrival = ends[source] + (0.0 if same else message)
                start = arrival if arrival > clock[rank] else clock[rank]
                key = (rank, ahead, mb)
                starts[key] = start
                length = self.forward[rank] if ahead else self.backward[rank]
                clock[rank] = ends[key] = start + length
                done[rank][ahead] += 1
                at[rank] += 1
                if key in waiting:
                    going.append(waiting.pop(key))
        return Timed(ends, starts, inf if waiting else max(clock))

    def swaps(self, turns: Turns, timed: Timed) -> list[tuple[int, int]]:
        """Neighbours of different kinds on a critical path: (rank, place of the first)."""
        position: dict[Key, int] = {}
        order: list[list[Key]] = []
        for rank, turn in enumerate(turns):
            done = [0, 0]
            keys = []
            for i, ahead in enumerate(turn):
                key = (rank, ahead, done[ahead])
                done[ahead] += 1
                position[key] = i
                keys.append(key)
            order.append(keys)
        key = max(timed.ends, key=lambda k: timed.ends[k])
        pairs = []
        while True:
            rank, ahead, mb = key
            i, start = position[key], timed.starts[key]
            before = order[rank][i - 1] if i else None
            if before is not None and timed.ends[before] >= start - ROUNDING:
                if before[1] != ahead and self._may_swap(turns[rank], i - 1, rank):
                    pairs.append((rank, i - 1))
                key = before
                continue
            if ahead and not rank:
                return pairs
            if not ahead and rank == self.p - 1:
                key = (rank, True, mb)
            else:
                key = (rank - 1, True, mb) if ahead else (rank + 1, False, mb)

    def _may_swap(self, turn: Sequence[bool], i: int, rank: int) -> bool:
        """Whether a neighbour pair may change places: limits, and no B before its own F."""
        live = sum(1 if ahead else -1 for ahead in turn[:i])
        if turn[i]:  # F B becomes B F: the B's own F must lie before
            return live >= 1
        return live + 1 <= self.limits[rank]
