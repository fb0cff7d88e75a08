"""Forwards and backwards as numbers by urgency, and how long an order of them takes.

    number    0    1    2    3    4    5    6    7      two stages, two micro-batches
    action   1F0  1F1  0F0  0F1  1B0  0B0  1B1  0B1

Forwards go before backwards, the deepest first: what has begun comes to its loss soonest; of
backwards those of early micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.loops import PACE
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Work


@dataclass(frozen=True, slots=True)
class Numbered:
    """The work's actions by urgency, the most urgent first; an action is its number from here on.

    Of each: its stage, whether it is a backward, its micro-batch; the rank that runs it, the queue
    in which it waits there (forwards of each of the rank's stages, the deepest first, then
    backwards), and the action that its result makes possible, -1 for none. `first` are those that
    need nothing, `queues` how many of forwards each rank has, and `numbers` (2, stages,
    micro-batches) tells the number of a forward or backward.
    """

    work: Work
    stage: Index
    backward: Flags
    microbatch: Index
    rank: Index
    queue: Index
    follower: Index
    first: Index
    queues: Index
    numbers: Index

    @classmethod
    def of(cls, work: Work) -> Numbered:
        """Number the actions of some work.

        Raises:
            ScheduleError: a rank's limit is below the number of its stages.
        """
        actions = _Actions.of(work).by_urgency(work)
        numbers = np.full((2, len(work.stage_rank), work.num_microbatches), -1)
        numbers[actions.kind, actions.stage, actions.microbatch] = np.arange(len(actions.kind))
        position, queues = _queues(work)
        backward, rank = actions.backward, np.array(work.stage_rank)[actions.stage]
        return cls(
            work=work,
            stage=actions.stage,
            backward=backward,
            microbatch=actions.microbatch,
            rank=rank,
            queue=np.where(backward, queues[rank], position[actions.stage]),
            follower=actions.followers(work.depth, numbers),
            first=np.flatnonzero(~backward & (actions.stage % work.depth == 0)),
            queues=queues,
            numbers=numbers,
        )

    def lengths(self, forward: Sequence[float], backward: Sequence[float]) -> Array:
        """How long each action takes, by the lengths of each stage's."""
        both = np.array([forward, backward], dtype=np.float64)
        return np.asarray(both[self.backward.astype(np.int64), self.stage])

    @property
    def bounds(self) -> Index:
        """Where the actions of each rank begin and end in an order."""
        return np.append(0, np.cumsum(np.bincount(self.rank, minlength=len(self.queues))))

    def rows(self, order: Sequence[int]) -> Rows:
        """The actions of each rank by their numbers."""
        kinds = [(Kind.F, Kind.B)[back] for back in self.backward.tolist()]
        actions = list(map(Action, self.stage.tolist(), kinds, self.microbatch.tolist()))
        pairs = pairwise(self.bounds.tolist())
        return tuple(tuple(actions[number] for number in order[a:b]) for a, b in pairs)

    def order(self, rows: Rows) -> list[int]:
        """The numbers of all ranks' actions, one rank after another."""
        return [int(self.numbers[kind, stage, mb]) for row in rows for stage, kind, mb in row]

    def mirrored(self) -> Index:
        """The number of what each action is backwards in time, last micro-batches first.

        A forward is then the backward of its stage, and a backward the forward.
        """
        copies = range(len(self.work.stage_rank) // self.work.depth)
        shares = [self.work.microbatches_of(copy) for copy in copies]
        ends = np.array([share.start + share.stop - 1 for share in shares])
        microbatch = ends[self.stage // self.work.depth] - self.microbatch
        return self.numbers[np.where(self.backward, 0, 1), self.stage, microbatch]

    def ends(self, order: Sequence[int], lengths: Array) -> Array:
        """When each action of an order ends, which is `inf` where its rank never comes to it."""
        columns = np.array(order), self.bounds, self.rank, self.follower, lengths
        loops = PACE.loops(len(lengths), 1)
        return loops.ended(columns, self.first, self.work.message)


class _Actions(NamedTuple):
    """All forwards (kind 0) and backwards (1) of some work, (A,) each."""

    kind: Index
    stage: Index
    microbatch: Index

    @classmethod
    def of(cls, work: Work) -> _Actions:
        """Every F and B of every stage, of the micro-batches of its copy."""
        each = [work.microbatches_of(stage // work.depth) for stage in range(len(work.stage_rank))]
        stage = np.repeat(np.arange(len(each)), [len(some) for some in each])
        microbatch = np.concatenate([np.arange(some.start, some.stop) for some in each])
        kind = np.repeat(np.arange(2), len(stage))
        return cls(kind, np.tile(stage, 2), np.tile(microbatch, 2))

    @property
    def backward(self) -> Flags:
        """Which of them are backwards."""
        return np.asarray(self.kind == 1)

    def by_urgency(self, work: Work) -> _Actions:
        """The most urgent first: deep forwards, then backwards of early micro-batches."""
        depth = self.stage % work.depth
        microbatch = self.microbatch % max(1, work.num_microbatches // work.copies)
        first = np.where(self.backward, microbatch, -depth)
        second = np.where(self.backward, -depth, microbatch)
        order = np.lexsort((self.stage, second, first, self.kind))
        return _Actions(*(column[order] for column in self))

    def followers(self, depth: int, numbers: Index) -> Index:
        """The number of what each makes possible, on to the loss and back again; or -1."""
        position = self.stage % depth
        turns = ~self.backward & (position == depth - 1)
        ends = self.backward & (position == 0)
        stage = self.stage + np.where(self.backward, -1, 1)
        stage = np.where(turns | ends, self.stage, stage)
        after = numbers[self.kind | turns, stage, self.microbatch]
        return np.where(ends, -1, after)


def _queues(work: Work) -> tuple[Index, Index]:
    """The queue of each stage's forwards on its rank, and how many of them each rank has."""
    position, queues = np.zeros(len(work.stage_rank), dtype=np.int64), list[int]()
    for rank in range(max(work.stage_rank) + 1):
        stages = work.stages_by_depth(rank)
        _check_limit(work, rank, len(stages))
        position[stages] = np.arange(len(stages))
        queues.append(len(stages))
    return position, np.array(queues)


def _check_limit(work: Work, rank: int, stages: int) -> None:
    if work.limits[rank] < stages:
        raise ScheduleError(
            f"a limit of {work.limits[rank]} chunks in flight on rank {rank} is too small for "
            f"its {stages} stages; allowed: {stages} and more"
        )
