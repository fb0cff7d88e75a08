"""Many dispatching rules run at once: each is a way for ranks to choose what to run next.

    rank 1 is free at 4     1F2 is there since 3, 1I0 comes at 5, a 1W0 of length 2 is left over
    rule A                  1F2 now: forwards first, while at most 3 are ahead of the I
    rule B                  waits for 1I0, and fills the gap of 1 with 1W0 from 4 to 6

A rule has four numbers for every stage, so that unequal stages act unequally; replicas of a stage
act alike. The pipeline is run as
arrays over all rules: in each round every rank acts whose next action no message can change any
more, which are those that start before any action of this round can end.

Source: dispatching rules, Panwalkar and Iskander 1977. Micro-batches keep their order on every
stage, one stage a rank. Leaves out: rules that look at single micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parsim.arrays import Array, Columns, Flags, Index, Ints
from parsim.plan.stages import least_warmups
from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.routes import B, F, Routes, W

if TYPE_CHECKING:
    from parsim.schedule.orders.weight_fill import Rows
    from parsim.schedule.orders.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Columns):
    """K rules, whose numbers for each of p stages are rows, (p, K).

    `ahead` forwards at most have no backward yet; `eager` ranks take a forward before a backward.
    For the one that it prefers, a rank waits `patience` lengths of a forward. In a gap it runs a W
    if the gap is at least `gap` lengths of it.
    """

    ahead: Ints
    eager: Flags
    patience: Array
    gap: Array

    def __len__(self) -> int:
        return int(self.ahead.shape[1])


class Shop:
    """A pipeline whose orders are searched for, as columns of one row a rank.

    `stages` are those that rules have numbers for, `most` the actions of the rank that has most,
    `actions` those of all ranks; lengths and limits have a column for each rank. `users` says what
    waits for an action's result, `lasts` how long that travels.
    """

    def __init__(self, work: Work) -> None:
        """Take over the work: one stage a rank, one copy."""
        replicas = work.replicas
        self.stages, self.p, self.split = replicas.stages, replicas.num_ranks, bool(work.weight)
        self.stage_of, self.counts = np.array(replicas.stage_of), np.array(replicas.counts)
        self.first = np.array([replicas.ranks(stage)[0] for stage in range(self.stages)])
        self.each = work.num_microbatches // self.counts[self.stage_of]
        self.users = _users(Routes(replicas, work.num_microbatches))
        self.lasts = _lasts(work)
        weight = work.weight or [0.0] * self.stages
        lengths = np.array([work.forward, work.backward, weight], dtype=float)
        self.lengths = lengths[:, self.stage_of]
        self.limits = np.minimum(np.array(work.limits)[self.stage_of], self.each)
        kinds = 3 if self.split else 2
        self.shortest = self.lengths[:kinds].min(axis=0)[:, None]
        self.most, self.actions = kinds * int(self.each.max()), kinds * int(self.each.sum())

    @property
    def stage_limits(self) -> Ints:
        """Chunks that each of a stage's replicas may hold, (p,)."""
        return np.asarray(self.limits[self.first])

    @property
    def begun(self) -> Ints:
        """Forwards that 1F1B begins with, and one more, (p,)."""
        return np.array(least_warmups(self.counts.tolist())) + 1

    def ends(self, rules: Rules) -> Array:
        """When the last action of each rule's order ends, (K,); `inf` where ranks wait for ever."""
        run = _Run(self, rules)
        run.to_the_end()
        return run.ends()

    def rows(self, rules: Rules) -> Rows:
        """The order that the first rule finds."""
        run = _Run(self, rules.take(np.array([0])), record=True)
        run.to_the_end()
        return self.in_order(run.sequence[:, 0].tolist())

    def in_order(self, sequences: Sequence[Sequence[int]]) -> Rows:
        """The actions of each rank's sequence of kinds, micro-batches in their order."""
        return tuple(self._row(rank, kinds) for rank, kinds in enumerate(sequences))

    def _row(self, rank: int, sequence: Sequence[int]) -> tuple[Action, ...]:
        """The actions of a rank; what ranks with more micro-batches run behind is -1."""
        kinds, stage = (Kind.F, Kind.I if self.split else Kind.B, Kind.W), int(self.stage_of[rank])
        begin, step = rank - int(self.first[stage]), int(self.counts[stage])
        done, row = [begin] * 3, []
        for what in sequence:
            if what >= 0:
                row.append(Action(stage, kinds[what], done[what]))
                done[what] += step
        return tuple(row)


class _Run:
    """Where all ranks are under all rules; rows are ranks, columns rules.

    `done` are the actions that have run by kind, `arrivals` when the inputs of each micro-batch's
    F and B are there (one row more than ranks, for what nobody waits for).
    """

    def __init__(self, shop: Shop, rules: Rules, *, record: bool = False) -> None:
        p, m, count = shop.p, int(shop.each.max()), len(rules)
        self.shop = shop
        self.ahead, self.eager = rules.ahead[shop.stage_of], rules.eager[shop.stage_of]
        self.clock = np.zeros((p, count))
        self.done = np.zeros((3, p, count), dtype=np.int64)
        self.arrivals = np.full((2, p + 1, count, m + 1), np.inf)
        self.arrivals[F, : shop.counts[0], :, : shop.each[0]] = 0.0
        self.next = self.arrivals[:, :p, :, 0].copy()
        forward, _, weight = shop.lengths[:, :, None]
        self.patience = rules.patience[shop.stage_of] * forward
        self.gap = rules.gap[shop.stage_of] * weight
        shape = (p, count, shop.most) if record else (0, 0, 0)
        self.sequence = np.full(shape, -1, dtype=np.int64)

    def ends(self) -> Array:
        complete = self.done.sum(axis=(0, 1)) == self.shop.actions
        return np.where(complete, self.clock.max(axis=0), np.inf)

    def to_the_end(self) -> None:
        """Run rounds until no rank can act under any rule."""
        while True:
            what, start = self._wanted()
            settled = (start + self.shop.shortest).min(axis=0)
            ranks, columns = np.nonzero((start <= settled) & np.isfinite(start))
            if not len(ranks):
                return
            self._run(ranks, columns, what[ranks, columns], start[ranks, columns])

    def _wanted(self) -> tuple[Index, Array]:
        """What each rank would run next and when it would start; `inf` where nothing is there."""
        done, clock, shop = self.done, self.clock, self.shop
        weight = shop.lengths[W][:, None]
        full = done[F] - done[W if shop.split else B] >= shop.limits[:, None]
        ready = np.where(full, clock + weight if shop.split else np.inf, clock)
        allowed = done[F] - done[B] < self.ahead
        forward = np.where(allowed, np.maximum(ready, self.next[F]), np.inf)
        backward = np.maximum(clock, self.next[B])
        later = np.where(self.eager, self.patience, -self.patience)
        ahead = np.where(self.eager, forward <= backward + later, forward < backward + later)
        start = np.where(ahead, forward, backward)
        what = np.where(ahead, F, B)
        if shop.split:
            gap = start - clock
            fills = ((gap > 0.0) & (gap >= self.gap)) | (full & ahead)
            fills &= done[W] < done[B]
            what, start = np.where(fills, W, what), np.where(fills, clock, start)
        return what, start

    def _run(self, ranks: Index, columns: Index, what: Index, start: Array) -> None:
        """Run an action on each of some ranks."""
        ends = start + self.shop.lengths[what, ranks]
        number = self.done[what, ranks, columns]
        if self.sequence.size:
            self.sequence[ranks, columns, self.done[:, ranks, columns].sum(axis=0)] = what
        self.clock[ranks, columns] = ends
        self.done[what, ranks, columns] = number + 1
        self._send(ranks, columns, what, number, ends)
        at = self.done[what, ranks, columns]
        kind = np.minimum(what, B)
        self.next[kind, ranks, columns] = np.where(
            what == W, self.next[kind, ranks, columns], self.arrivals[kind, ranks, columns, at]
        )

    def _send(self, ranks: Index, columns: Index, what: Index, number: Index, ends: Array) -> None:
        """Give results on: a forward down, that of the last stage to its own B, a backward up."""
        users = self.shop.users[:, what, ranks, number]
        sent = users[0] >= 0
        kind, to, number = users[:, sent]
        columns = columns[sent]
        arrival = (ends + self.shop.lasts[what, ranks])[sent]
        self.arrivals[kind, to, columns, number] = arrival
        waited = self.done[kind, to, columns] == number
        self.next[kind[waited], to[waited], columns[waited]] = arrival[waited]


def _users(routes: Routes) -> Index:
    """Kind, rank and number of what each rank's F, B and W of each number feed, or -1."""
    ranks = range(routes.replicas.num_ranks)
    users = np.full((3, 3, len(ranks), max(map(routes.each, ranks))), -1)
    for rank, kinds in enumerate(routes.table(user=True)):
        for kind, row in enumerate(kinds):
            for number, user in enumerate(row):
                if user is not None:
                    users[:, kind, rank, number] = user[1], user[0], user[2]
    return users


def _lasts(work: Work) -> Array:
    """How long what each rank's F, B and W make travels to the next stage."""
    ahead, back = work.hops
    by_stage = np.array([(*ahead, 0.0), (0.0, *back), (0.0,) * (len(ahead) + 1)])
    return by_stage[:, work.replicas.stage_of]
