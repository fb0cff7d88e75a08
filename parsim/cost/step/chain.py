"""A chain of layers, the ranks that hold its stages, and what cuts of it take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parsim.arrays import Array

SAME = 1e-9
"""Share by which sums of the same layers may differ by rounding."""

SUMS = 100_000
"""Sums of layers that are listed; where there are more, any number of seconds counts as one."""


Cut = tuple[int, ...]
"""Items of each stage."""


@dataclass(frozen=True)
class Chain:
    """N items of `seconds` (N,), and how often each of P ranks holds each of S stages.

    `shares` (P, S) are these numbers. Each stage has an item at least, so that the first item is on
    the first stage and the last on the last one, whatever the cut.
    """

    seconds: Array
    shares: Array

    @classmethod
    def on(cls, seconds: Array, ranks: Sequence[int], stages: int) -> Chain:
        """The chain with stages on these ranks, those of a second copy of it behind the first's.

        Ranks that hold the same stages are listed once.
        """
        shares = np.zeros((max(ranks) + 1, stages))
        for number, rank in enumerate(ranks):
            shares[rank, number % stages] += 1.0
        return cls(np.asarray(seconds, dtype=np.float64), np.unique(shares, axis=0))

    @property
    def num_stages(self) -> int:
        """Stages of one copy of the chain, S."""
        return int(self.shares.shape[1])

    @cached_property
    def holders(self) -> list[dict[int, float]]:
        """The ranks that hold each stage, and how often each does."""
        return [
            {rank: share for rank, share in enumerate(column) if share > 0.0}
            for column in self.shares.T.tolist()
        ]

    @cached_property
    def segments(self) -> Array:
        """Seconds of items from first up to end, (N + 1, N + 1); infinite where there is none."""
        total = np.concatenate([[0.0], np.cumsum(self.seconds)])
        first, end = np.indices((len(total), len(total)))
        return np.where(first < end, total[None, :] - total[:, None], np.inf)

    @cached_property
    def ends(self) -> Array:
        """What the first and the last item take, on the stages that have them, (S,)."""
        each = np.zeros(self.num_stages)
        each[0], each[-1] = self.seconds[0], self.seconds[-1]
        return each

    @cached_property
    def fewest(self) -> Array:
        """What each stage takes at least beside the first and the last item, (S,)."""
        each = np.full(self.num_stages, self.seconds[1:-1].min(initial=np.inf))
        each[0] = each[-1] = 0.0
        return each

    @cached_property
    def sums(self) -> list[float] | None:
        """All sums of items that ranks share out, ascending; None where they are not listed."""
        kinds, counts = np.unique(_rounded(self.seconds[1:-1]), return_counts=True)
        if np.prod(counts + 1.0) > SUMS:
            return None
        every = np.zeros(1)
        for kind, count in zip(kinds, counts, strict=True):
            every = (every[:, None] + kind * np.arange(count + 1)).ravel()
        return list(np.unique(every).tolist())

    def whole(self, room: float) -> float:
        """The largest sum of whole items in so many seconds."""
        if self.sums is None or room <= 0.0:
            return room
        return self.sums[bisect_right(self.sums, room * (1.0 + SAME)) - 1]

    @cached_property
    def inner(self) -> Array:
        """Seconds of all items before each that may be on several stages, (N + 1,)."""
        inner = self.seconds.copy()
        inner[[0, -1]] = 0.0
        return np.concatenate([[0.0], np.cumsum(inner)])

    @cached_property
    def thinnest(self) -> Array:
        """How often each rank holds any of its stages at least, (P,)."""
        return np.asarray(np.where(self.shares > 0.0, self.shares, np.inf).min(axis=1))

    @cached_property
    def times(self) -> int:
        """On how many ranks each stage is at least, of which alike ones are listed once."""
        return int((self.shares > 0.0).sum(axis=0).min())

    @cached_property
    def stages_left(self) -> Array:
        """How many of stages s and behind each rank holds, but one at least, (S + 1, P)."""
        return np.maximum(behind_each(self.shares), 1.0)

    @cached_property
    def fewest_behind(self) -> Array:
        """What stages s and behind take on each rank at least, (S + 1, P)."""
        return behind_each(self.shares * self.fewest)

    @cached_property
    def boundless(self) -> Array:
        """What stages s and behind may take on each rank where none has a bound, (S + 1, P)."""
        some = np.asarray(self.shares > 0.0, dtype=np.float64)
        return np.where(behind_each(some) > 0.0, np.inf, 0.0)

    def stages(self, cut: Cut) -> Array:
        """What each stage of a cut takes, (S,)."""
        return np.add.reduceat(self.seconds, np.cumsum([0, *cut[:-1]]))

    def largest(self, cut: Cut) -> float:
        """What the largest stage of a cut takes."""
        return float(self.stages(cut).max())

    def busiest(self, cut: Cut) -> float:
        """What the stages of a cut take on the rank that has most to do."""
        return float((self.shares @ self.stages(cut)).max())

    def unevenness(self, cut: Cut) -> tuple[float, float]:
        """The largest stage of a cut, then the sum of all squares."""
        stages = self.stages(cut)
        return float(stages.max()), float((stages**2).sum())

    @cached_property
    def least_largest(self) -> float:
        """What the largest stage takes at least, of any cut."""
        return _least_largest([self.segments] * self.num_stages)

    @cached_property
    def alone_balanced(self) -> Cut:
        """The cut whose largest stage takes the least, and of those the one with least squares.

        It does not know of ranks.
        """
        squares = _squares(self.segments, self.least_largest)
        return _least_sum([squares] * self.num_stages)

    def balanced(self, weights: Sequence[float]) -> Cut:
        """The cut as of `alone_balanced`, where stages count so many times their seconds, (S,)."""
        stages = [self.segments * weight for weight in weights]
        least = _least_largest(stages)
        return _least_sum([_squares(each, least) for each in stages])


def behind_each(each: Array) -> Array:
    """Sums over stages s and behind, (S + 1, P), of what each rank has of each stage, (P, S)."""
    sums = np.zeros((each.shape[1] + 1, len(each)))
    sums[:-1] = np.cumsum(each[:, ::-1], axis=1)[:, ::-1].T
    return sums


def _least_largest(stages: Sequence[Array]) -> float:
    """What the largest stage takes at least, of any cut, by what each may take."""
    return float(_behind(stages, np.maximum)[0][0])


def _squares(stage: Array, largest: float) -> Array:
    """The squares of what a stage may take, infinite above the largest that is allowed."""
    return np.where(stage <= largest * (1.0 + SAME), stage, np.inf) ** 2


def _least_sum(stages: Sequence[Array]) -> Cut:
    """The cut whose stages have the least sum."""
    ends = [0]
    for each, rest in zip(stages, _behind(stages, np.add)[1:], strict=True):
        ends.append(int(np.argmin(each[ends[-1]] + rest)))
    return tuple(np.diff(ends).tolist())


def _behind(stages: Sequence[Array], join: np.ufunc) -> list[Array]:
    """The least that joined costs of stages s to S - 1 can be, by where s begins.

    Each stage before s has an item at least, and each from s on: s begins at one of as many items
    as there are more than stages, and one. What lies elsewhere has infinite costs.
    """
    count = len(stages[0])
    behind = [np.where(np.arange(count) < count - 1, np.inf, 0.0)]
    more = count - 1 - len(stages)
    for number in reversed(range(len(stages))):
        least = np.full(count, np.inf)
        if more >= 0:
            first, end = slice(number, number + more + 1), slice(number + 1, number + more + 2)
            least[first] = join(stages[number][first, end], behind[-1][end]).min(axis=1)
        behind.append(least)
    return behind[::-1]


def _rounded(seconds: Array) -> Array:
    """Seconds of which those of like layers are equal."""
    unit = max(float(seconds.max(initial=0.0)), 1e-300) * SAME
    return np.asarray(np.round(seconds / unit) * unit)
