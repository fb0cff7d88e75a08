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
from parsim.cost.step.chain import SAME, Chain, Cut, behind_each

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
            taken = float(self.chain.inner[end] - self.chain.inner[first])
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
        left = float(self.chain.inner[-1] - self.chain.inner[first]) * self.chain.times
        part = room / self.chain.stages_left[stage] * min(left / max(room.sum(), left, 1e-300), 1.0)
        part = part[self.chain.shares[:, stage] > 0.0].min()
        apart = np.abs(self.chain.inner[ends] - self.chain.inner[first] - part)
        return np.asarray(ends[np.argsort(apart, kind="stable")])

    def _has_room(self, stage: int, first: int, room: Array) -> bool:
        """Whether ranks have room for the items from `first` on, on stages `stage` and behind."""
        if (room < self.chain.fewest_behind[stage]).any():
            return False
        most = np.minimum(room / self.chain.thinnest, self._most[stage])
        whole = sum(map(self.chain.whole, most.tolist()))
        left = float(self.chain.inner[-1] - self.chain.inner[first])
        return whole >= NEARLY * left * self.chain.times

    @cached_property
    def _first_room(self) -> Array:
        """Seconds that each rank has for items other than the first and the last, (P,)."""
        return np.asarray(self.busiest * (1.0 + SAME) - self.chain.shares @ self.chain.ends)

    @cached_property
    def _most(self) -> Array:
        """What items of stages s and behind may take on each rank at most, (S + 1, P)."""
        if not np.isfinite(self.largest):
            return self.chain.boundless
        some = np.asarray(self.chain.shares > 0.0, dtype=np.float64)
        each = [self.chain.whole(self.largest - ends) for ends in self.chain.ends.tolist()]
        return behind_each(some * np.array(each))
