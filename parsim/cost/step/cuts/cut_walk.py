"""A walk over the stages of a chain to a cut that keeps bounds on its ranks and on its stages.

It gives each stage nearly that part of its rank's room which falls to it, and turns back where the
ranks have less room than is left of the chain:

    room of a rank = its bound, less its stages so far, in whole layers of each kind,
                     and no more than its later stages may take

Of equal layers that room is all there is to know, so that the walk never turns back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.step.chain import SAME, Chain, Cut, behind_each

NEARLY = 1.0 - 1e-6
"""Share of what is left of a chain that must find room: rounding does not turn a walk back."""

STEPS = 2000
"""Steps of a walk, after which it counts as proven that no cut keeps its bounds."""


Room = tuple[float, ...]
"""Seconds that each of P ranks has left."""


@dataclass(frozen=True)
class CutWalk:
    """The search for a cut of which no rank takes more than `busiest`, no stage than `largest`."""

    chain: Chain
    busiest: float
    largest: float = np.inf

    @property
    def may_hold(self) -> bool:
        """Whether the ranks have room for the whole chain, as far as that shows ahead."""
        ranks = range(len(self.first_room))
        return self._enough(self.whole(0, self.first_room, ranks), 0)

    def cut(self) -> Cut | None:
        """The first cut on the way that keeps the bounds, or None where none is known to."""
        if not self.may_hold:
            return None
        sizes = _Steps(self).sizes(0, 0, self.first_room)
        return None if sizes is None else tuple(sizes)

    def ends(self, stage: int, first: int, room: Room) -> list[int]:
        """Where a stage may end that begins at an item, nearest to its part of the room first."""
        ends, taken = self._open_ends(stage, first)
        left = (self._items[-1] - self._items[first]) * self.chain.times
        share = min(left / max(float(np.add.reduce(room)), left, 1e-300), 1.0)
        stages = self._stages_left[stage]
        part = min(room[rank] / stages[rank] * share for rank in self.chain.holders[stage])
        return list(ends[np.abs(taken - part).argsort(kind="stable")].tolist())

    def _open_ends(self, stage: int, first: int) -> tuple[Index, Array]:
        """Where a stage that begins at an item may end, and the seconds of its items then."""
        if (stage, first) not in self._known_ends:
            behind = self.chain.num_stages - 1 - stage
            last = len(self.chain.seconds) - behind
            ends = np.arange(first + 1 if behind else last, last + 1)
            ends = ends[self.chain.segments[first, ends] <= self.largest * (1.0 + SAME)]
            self._known_ends[stage, first] = ends, self.chain.inner[ends] - self.chain.inner[first]
        return self._known_ends[stage, first]

    @cached_property
    def _known_ends(self) -> dict[tuple[int, int], tuple[Index, Array]]:
        return {}

    @cached_property
    def _stages_left(self) -> list[list[float]]:
        """How many of stages s and behind each rank holds, as `Chain.stages_left` has them."""
        return list(self.chain.stages_left.tolist())

    def rests(self, stage: int, first: int, room: Room, ends: Iterable[int]) -> Iterator[Room]:
        """What is left of the room if a stage ends at each of some items; nothing if too little."""
        holders = self.chain.holders[stage]
        ranks = [rank for rank in range(len(room)) if rank not in holders]
        others = self.whole(stage + 1, room, ranks)
        for end in ends:
            taken, rest = self._items[end] - self._items[first], list(room)
            for rank, share in holders.items():
                rest[rank] -= share * taken
            whole = others + self.whole(stage + 1, rest, holders)
            yield tuple(rest) if self._enough(whole, end) else ()

    def whole(self, stage: int, room: Sequence[float], ranks: Iterable[int]) -> float:
        """Seconds of whole items that ranks have room for on stages `stage` and behind.

        Below all bounds where one of them has less than it needs at least.
        """
        (fewest, most), times, whole = self._limits[stage], self._times, 0.0
        for rank in ranks:
            if room[rank] < fewest[rank]:
                return -np.inf
            whole += self.chain.whole(min(room[rank] / times[rank], most[rank]))
        return whole

    def _enough(self, whole: float, first: int) -> bool:
        """Whether so much room is enough for the items from `first` on."""
        left = self._items[-1] - self._items[first]
        return whole >= NEARLY * left * self.chain.times

    @cached_property
    def _items(self) -> list[float]:
        """Seconds of all items before each, as `Chain.inner` has them."""
        return list(self.chain.inner.tolist())

    @cached_property
    def _times(self) -> list[float]:
        """How often each rank holds any of its stages at least."""
        return list(self.chain.thinnest.tolist())

    @cached_property
    def first_room(self) -> Room:
        """Seconds that each rank has for items other than the first and the last."""
        room = self.busiest * (1.0 + SAME) - self.chain.shares @ self.chain.ends
        return tuple(room.tolist())

    @cached_property
    def _limits(self) -> list[tuple[list[float], list[float]]]:
        """(Least, most) that items of stages s and behind may take on each rank, for each s."""
        return list(zip(self.chain.fewest_behind.tolist(), self._most.tolist(), strict=True))

    @cached_property
    def _most(self) -> Array:
        """What items of stages s and behind may take on each rank at most, (S + 1, P)."""
        if not np.isfinite(self.largest):
            return self.chain.boundless
        some = np.asarray(self.chain.shares > 0.0, dtype=np.float64)
        each = [self.chain.whole(self.largest - ends) for ends in self.chain.ends.tolist()]
        return behind_each(some * np.array(each))


@dataclass(slots=True)
class _Steps:
    """A walk under way: steps so far, and those of ways on that were found to lead nowhere.

    A way on is a stage, its first item and the room that is left. Whoever comes to one again has
    gone its steps, and need not walk them.
    """

    walk: CutWalk
    done: int = 0
    nowhere: dict[tuple[int, int, Room], int] = field(default_factory=dict)

    def sizes(self, stage: int, first: int, room: Room) -> list[int] | None:
        """Items of stages `stage` and behind if it begins at item `first` and so much is left."""
        if stage == self.walk.chain.num_stages:
            return []
        way, before = (stage, first, room), self.done
        if way in self.nowhere:
            self.done += self.nowhere[way]
            return None
        ends = self.walk.ends(stage, first, room)
        for end, rest in zip(ends, self.walk.rests(stage, first, room, ends), strict=True):
            if self.done >= STEPS:
                return None
            self.done += 1
            if rest:
                behind = self.sizes(stage + 1, end, rest)
                if behind is not None:
                    return [end - first, *behind]
        self.nowhere[way] = self.done - before
        return None
