"""A walk over the stages of a chain to a cut that keeps bounds on its ranks and on its stages.

It gives each stage nearly that part of its rank's room which falls to it, and turns back where the
ranks have less room than is left of the chain:

    room of a rank = its bound, less its stages so far, in whole layers of each kind,
                     and no more than its later stages may take

Of equal layers that room is all there is to know, so that the walk never turns back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.step.chain import SAME, Chain, Cut

NEARLY = 1.0 - 1e-6
"""Share of what is left of a chain that must find room: rounding does not turn a walk back."""

STEPS = 2000
"""Steps of a walk, after which it counts as proven that no cut keeps its bounds."""


@dataclass(frozen=True)
class CutWalk:
    """The search for a cut of which no rank takes more than `busiest`, no stage than `largest`."""

    chain: Chain
    busiest: float
    largest: float = np.inf

    @property
    def may_hold(self) -> bool:
        """Whether the ranks have room for the whole chain, as far as that shows ahead."""
        return self._has_room(0, 0, self._first_room)

    def cut(self) -> Cut | None:
        """The first cut on the way that keeps the bounds, or None where none is known to."""
        if not self.may_hold:
            return None
        sizes = self._sizes(0, 0, self._first_room, count())
        return None if sizes is None else tuple(sizes)

    def _sizes(self, stage: int, first: int, room: Array, steps: Iterator[int]) -> list[int] | None:
        """Items of stages `stage` and behind if it begins at item `first` and so much room is left.

        `room` (P,) are seconds of each rank.
        """
        if stage == self.chain.num_stages:
            return []
        for end in self._ends(stage, first, room).tolist():
            if next(steps) >= STEPS:
                return None
            taken = float(self._inner[end] - self._inner[first])
            rest = room - self.chain.shares[:, stage] * taken
            if self._has_room(stage + 1, end, rest):
                behind = self._sizes(stage + 1, end, rest, steps)
                if behind is not None:
                    return [end - first, *behind]
        return None

    def _ends(self, stage: int, first: int, room: Array) -> Index:
        """Where a stage may end that begins at an item, nearest to its part of the room first."""
        behind = self.chain.num_stages - 1 - stage
        last = len(self.chain.seconds) - behind
        ends = np.arange(first + 1 if behind else last, last + 1)
        ends = ends[self.chain.segments[first, ends] <= self.largest * (1.0 + SAME)]
        left = float(self._inner[-1] - self._inner[first]) * self._times
        part = room / self._stages_left[stage] * min(left / max(room.sum(), left, 1e-300), 1.0)
        part = part[self.chain.shares[:, stage] > 0.0].min()
        apart = np.abs(self._inner[ends] - self._inner[first] - part)
        return np.asarray(ends[np.argsort(apart, kind="stable")])

    def _has_room(self, stage: int, first: int, room: Array) -> bool:
        """Whether ranks have room for the items from `first` on, on stages `stage` and behind."""
        if (room < self._fewest[stage]).any():
            return False
        most = np.minimum(room / self._thinnest, self._most[stage])
        whole = sum(map(self.chain.whole, most.tolist()))
        left = float(self._inner[-1] - self._inner[first])
        return whole >= NEARLY * left * self._times

    @cached_property
    def _inner(self) -> Array:
        """Seconds of all items before each that may be on several stages, (N + 1,)."""
        inner = self.chain.seconds.copy()
        inner[[0, -1]] = 0.0
        return np.concatenate([[0.0], np.cumsum(inner)])

    @cached_property
    def _first_room(self) -> Array:
        """Seconds that each rank has for items other than the first and the last, (P,)."""
        return np.asarray(self.busiest * (1.0 + SAME) - self.chain.shares @ self.chain.ends)

    @cached_property
    def _thinnest(self) -> Array:
        """How often each rank holds any of its stages at least, (P,)."""
        shares = self.chain.shares
        return np.asarray(np.where(shares > 0.0, shares, np.inf).min(axis=1))

    @cached_property
    def _times(self) -> int:
        """On how many ranks each stage is at least, of which alike ones are listed once."""
        return int((self.chain.shares > 0.0).sum(axis=0).min())

    @cached_property
    def _stages_left(self) -> Array:
        """How many of stages s and behind each rank holds, but one at least, (S + 1, P)."""
        return np.maximum(_later(self.chain.shares), 1.0)

    @cached_property
    def _fewest(self) -> Array:
        """What stages s and behind take on each rank at least, (S + 1, P)."""
        return _later(self.chain.shares * self.chain.fewest)

    @cached_property
    def _most(self) -> Array:
        """What items of stages s and behind may take on each rank at most, (S + 1, P)."""
        some = np.asarray(self.chain.shares > 0.0, dtype=np.float64)
        if not np.isfinite(self.largest):
            return np.where(_later(some) > 0.0, np.inf, 0.0)
        each = [self.chain.whole(self.largest - ends) for ends in self.chain.ends.tolist()]
        return _later(some * np.array(each))


def _later(each: Array) -> Array:
    """Sums over stages s and behind, (S + 1, P), of what each rank has of each stage, (P, S)."""
    sums = np.zeros((each.shape[1] + 1, len(each)))
    sums[:-1] = np.cumsum(each[:, ::-1], axis=1)[:, ::-1].T
    return sums
