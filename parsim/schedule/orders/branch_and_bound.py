"""Branch and bound over active schedules: small pipelines are ordered optimally, and proven so.

At each step the rank whose next action could end first is taken; whoever of its next F, B (or I)
and W could start before that end is tried. A partial schedule is left where its bound is no shorter
than what is known, or where another one has done the same actions no later.

A limit of micro-batches leaves that complete: a rank has no other forward between a forward and an
earlier moment at which it may run it, so that it holds no more for running it then.

Source: Giffler and Thompson 1960: an active schedule is optimal for some order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from parsim.schedule.orders.routes import B, F, Key, Routes, W

if TYPE_CHECKING:
    from parsim.schedule.orders.work import Work

ROUNDING = 1e-9

Counts = tuple[tuple[int, int, int], ...]
"""How many F, B (or I) and W each rank has run."""


class _Partial(NamedTuple):
    """Actions that have run: how many, until when ranks are busy, when results were made."""

    counts: Counts
    clocks: tuple[float, ...]
    ends: dict[Key, float]
    sequences: tuple[tuple[int, ...], ...]


class _Option(NamedTuple):
    """An action that could be next on its rank."""

    start: float
    end: float
    rank: int
    kind: int


class BranchAndBound:
    """One search; `best` is what it found that is shorter than `upper` was, if anything."""

    def __init__(self, work: Work, upper: float, nodes: int) -> None:
        """Search for less than `upper`, over so many partial schedules at most."""
        self.work, self.upper, self.left = work, upper, nodes
        routes = Routes(work.replicas, work.num_microbatches)
        self.stage_of, self.split = work.replicas.stage_of, bool(work.weight)
        self.p, self.each = len(self.stage_of), [*map(routes.each, range(len(self.stage_of)))]
        self.sources, self.users = list(routes.table(user=False)), list(routes.table(user=True))
        weight = work.weight or [0.0] * len(work.forward)
        lengths = (work.forward, work.backward, weight)
        self.lengths = [[kind[stage] for stage in self.stage_of] for kind in lengths]
        self.limits = [work.limits[stage] for stage in self.stage_of]
        self.best: tuple[tuple[int, ...], ...] | None = None
        self.seen: dict[Counts, list[tuple[float, ...]]] = {}
        self.hops, self.most, back = work.hops, max(work.replicas.counts), work.hops[1]
        self.tails = [sum(work.backward[:stage]) + sum(back[:stage]) for stage in self.stage_of]

    def run(self) -> bool:
        """Search; true where all that could be shorter was looked at."""
        done = [(m, m, m if self.split else 0) for m in self.each]
        stack = [_Partial(((0, 0, 0),) * self.p, (0.0,) * self.p, {}, ((),) * self.p)]
        while stack:
            self.left -= 1
            if self.left < 0:
                return False
            partial = stack.pop()
            if list(partial.counts) == done:
                self._finish(partial)
                continue
            stack.extend(after for after in self._branches(partial) if self._worth(after))
        return True

    def _finish(self, partial: _Partial) -> None:
        length = max(partial.clocks)
        if length < self.upper * (1.0 - ROUNDING):
            self.upper, self.best = length, partial.sequences

    def _branches(self, partial: _Partial) -> Iterator[_Partial]:
        """What the rank that could end first may run next, the earliest start last."""
        options = [o for rank in range(self.p) for o in self._options(partial, rank)]
        if not options:
            return
        first = min(options, key=lambda option: (option.end, option.rank, option.kind))
        rivals = [o for o in options if o.rank == first.rank and o.start < first.end - ROUNDING]
        for option in sorted({first, *rivals}, reverse=True):
            yield self._after(partial, option)

    def _options(self, partial: _Partial, rank: int) -> Iterator[_Option]:
        """The next F, B and W of a rank, where their inputs are made and its limit allows them."""
        forwards, backwards, weights = partial.counts[rank]
        clock = partial.clocks[rank]
        in_flight = forwards - (weights if self.split else backwards)
        if forwards < self.each[rank] and in_flight < self.limits[rank]:
            yield from self._option(partial, rank, F, self.sources[rank][F][forwards])
        if backwards < forwards:
            yield from self._option(partial, rank, B, self.sources[rank][B][backwards])
        if self.split and weights < backwards:
            yield _Option(clock, clock + self.lengths[W][rank], rank, W)

    def _option(
        self, partial: _Partial, rank: int, kind: int, source: Key | None
    ) -> Iterator[_Option]:
        """The action behind its input, where that is made."""
        start = partial.clocks[rank]
        if source is not None:
            if source not in partial.ends:
                return
            start = max(start, partial.ends[source] + self._message(source[0], rank))
        yield _Option(start, start + self.lengths[kind][rank], rank, kind)

    def _message(self, sender: int, receiver: int) -> float:
        """How long what one rank makes for another travels."""
        first, then = self.stage_of[sender], self.stage_of[receiver]
        return 0.0 if first == then else self.hops[int(then < first)][min(first, then)]

    def _after(self, partial: _Partial, option: _Option) -> _Partial:
        _, end, rank, kind = option
        before = partial.counts[rank]
        done = (before[F] + (kind == F), before[B] + (kind == B), before[W] + (kind == W))
        ends = partial.ends if kind == W else {**partial.ends, (rank, kind, before[kind]): end}
        return _Partial(
            (*partial.counts[:rank], done, *partial.counts[rank + 1 :]),
            (*partial.clocks[:rank], end, *partial.clocks[rank + 1 :]),
            ends,
            (
                *partial.sequences[:rank],
                (*partial.sequences[rank], kind),
                *partial.sequences[rank + 1 :],
            ),
        )

    def _worth(self, partial: _Partial) -> bool:
        """Whether a partial schedule may become the shortest, and none has done the same sooner."""
        limit = self.upper * (1.0 - ROUNDING)
        if any(self._least(partial, rank) >= limit for rank in range(self.p)):
            return False
        times = (*partial.clocks, *self._pending(partial))
        known = self.seen.setdefault(partial.counts, [])
        if any(all(a <= b for a, b in zip(other, times, strict=True)) for other in known):
            return False
        known.append(times)
        return True

    def _least(self, partial: _Partial, rank: int) -> float:
        """An end that a rank's own work and the backwards above it do not allow to be earlier."""
        forwards, backwards, weights = partial.counts[rank]
        m = self.each[rank]
        ahead = (m - forwards) * self.lengths[F][rank]
        ahead += (m - backwards) * self.lengths[B][rank]
        tail = self.tails[rank] if backwards < m else 0.0
        late = (m - weights) * self.lengths[W][rank] if self.split else 0.0
        return partial.clocks[rank] + ahead + max(tail, late)

    def _pending(self, partial: _Partial) -> Iterator[float]:
        """When results that are still to be used were made, in an order that counts decide."""
        counts, most = partial.counts, self.most
        for rank, (forwards, backwards, _) in enumerate(counts):
            for kind, done in ((F, forwards), (B, backwards)):
                users, used = self.users[rank][kind], 0
                for number in range(done - 1, -1, -1):
                    user = users[number]
                    if user is None or used == most:
                        break  # ranks take what is made in order: all earlier ones are used
                    if counts[user[0]][user[1]] > user[2]:
                        used += 1
                        continue
                    used = 0
                    yield partial.ends[rank, kind, number]
