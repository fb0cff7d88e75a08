"""Branch and bound over active schedules: small pipelines are ordered optimally, and proven so.

At each step the rank whose next action could end first is taken; whoever of its next F and B could
start before that end is tried. A partial schedule is left where its bound is no shorter than what
is known, or where another one has done the same actions no later.

Source: Giffler and Thompson 1960: an active schedule is optimal for some order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from parsim.schedule.orders.job_shop import ROUNDING, Key, Shop, Turns

Counts = tuple[tuple[int, int], ...]
"""How many backwards and forwards each rank has run, (B, F)."""


class _Partial(NamedTuple):
    """Actions that have run: how many, until when ranks are busy, when results were made."""

    counts: Counts
    clocks: tuple[float, ...]
    ends: dict[Key, float]
    turns: tuple[tuple[bool, ...], ...]


class _Option(NamedTuple):
    """An action that could be next on its rank."""

    start: float
    end: float
    rank: int
    ahead: bool


class BranchAndBound:
    """One search; `best` is what it found that is shorter than `upper` was, if anything."""

    def __init__(self, shop: Shop, upper: float, nodes: int) -> None:
        """Search for less than `upper`, over so many partial schedules at most."""
        self.shop, self.upper, self.left = shop, upper, nodes
        self.best: Turns | None = None
        self.seen: dict[Counts, list[tuple[float, ...]]] = {}
        self.tails = [sum(shop.backward[:rank]) + rank * shop.message for rank in range(shop.p)]

    def run(self) -> bool:
        """Search; true where all that could be shorter was looked at."""
        p, m = self.shop.p, self.shop.m
        stack = [_Partial(((0, 0),) * p, (0.0,) * p, {}, ((),) * p)]
        while stack:
            self.left -= 1
            if self.left < 0:
                return False
            partial = stack.pop()
            if all(done == (m, m) for done in partial.counts):
                self._finish(partial)
                continue
            stack.extend(after for after in self._branches(partial) if self._worth(after))
        return True

    def _finish(self, partial: _Partial) -> None:
        length = max(partial.clocks)
        if length < self.upper * (1.0 - ROUNDING):
            self.upper, self.best = length, [list(turn) for turn in partial.turns]

    def _branches(self, partial: _Partial) -> Iterator[_Partial]:
        """What the rank that could end first may run next, the earliest start last."""
        options = [o for rank in range(self.shop.p) for o in self._options(partial, rank)]
        if not options:
            return
        first = min(options, key=lambda option: (option.end, option.rank))
        rivals = [o for o in options if o.rank == first.rank and o.start < first.end - ROUNDING]
        for option in sorted(rivals, reverse=True):
            yield self._after(partial, option)

    def _options(self, partial: _Partial, rank: int) -> Iterator[_Option]:
        """The next F and B of a rank, where their inputs are made and its limit allows them."""
        shop, last = self.shop, self.shop.p - 1
        backwards, forwards = partial.counts[rank]
        clock = partial.clocks[rank]
        if forwards < shop.m and forwards - backwards < shop.limits[rank]:
            arrival = 0.0 if rank == 0 else partial.ends.get((rank - 1, True, forwards), -1.0)
            if arrival >= 0.0:
                start = max(clock, arrival + (shop.message if rank else 0.0))
                yield _Option(start, start + shop.forward[rank], rank, True)
        if backwards < forwards:
            source = (rank, True, backwards) if rank == last else (rank + 1, False, backwards)
            arrival = partial.ends.get(source, -1.0)
            if arrival >= 0.0:
                start = max(clock, arrival + (shop.message if rank < last else 0.0))
                yield _Option(start, start + shop.backward[rank], rank, False)

    def _after(self, partial: _Partial, option: _Option) -> _Partial:
        rank, ahead = option.rank, option.ahead
        backwards, forwards = partial.counts[rank]
        done = (backwards + (not ahead), forwards + ahead)
        key = (rank, ahead, forwards if ahead else backwards)
        return _Partial(
            (*partial.counts[:rank], done, *partial.counts[rank + 1 :]),
            (*partial.clocks[:rank], option.end, *partial.clocks[rank + 1 :]),
            {**partial.ends, key: option.end},
            (*partial.turns[:rank], (*partial.turns[rank], ahead), *partial.turns[rank + 1 :]),
        )

    def _worth(self, partial: _Partial) -> bool:
        """Whether a partial schedule may become the shortest, and none has done the same sooner."""
        shop = self.shop
        for rank, (backwards, forwards) in enumerate(partial.counts):
            left = (shop.m - forwards) * shop.forward[rank]
            left += (shop.m - backwards) * shop.backward[rank]
            tail = self.tails[rank] if backwards < shop.m else 0.0
            if partial.clocks[rank] + left + tail >= self.upper * (1.0 - ROUNDING):
                return False
        times = (*partial.clocks, *self._pending(partial))
        known = self.seen.setdefault(partial.counts, [])
        if any(all(a <= b for a, b in zip(other, times, strict=True)) for other in known):
            return False
        known.append(times)
        return True

    def _pending(self, partial: _Partial) -> Iterator[float]:
        """When results that are still to be used were made, in an order that counts decide."""
        for rank, (backwards, forwards) in enumerate(partial.counts):
            used = partial.counts[rank + 1][1] if rank + 1 < self.shop.p else backwards
            yield from (partial.ends[rank, True, mb] for mb in range(used, forwards))
            if rank:
                used = partial.counts[rank - 1][0]
                yield from (partial.ends[rank, False, mb] for mb in range(used, backwards))
