"""A cut of layers into stages made better layer by layer, judged by the order of its schedule.

    4 4 4 head    the first layer of a stage goes to any other, those between pass one on
    5 4 3 head    from the third to the first

Every action takes its share of what its stage's layers do, and updates behind the last one theirs;
messages take no time. The best of such moves is made until none is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.step.chain import Chain, Cut
from parsim.cost.step.cuts import THIRDS, Shares
from parsim.plan import Plan
from parsim.plan.names import AUTO, SCHEDULE_NAMES
from parsim.schedule import Kind
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import CompiledSchedule, compiled_schedule
from parsim.sim.step.schedule_costs import on_ranks

FEW = 2
"""Rounds of a micro-batch a rank after which a schedule repeats itself."""

ROUNDS = 4
"""Further rounds that count where there are more micro-batches, however many."""

STAGES = 16
"""Stages up to which layers move to any other; the more there are, the nearer they stay."""

MORE, LONG = 2 * STAGES, 512
"""Stages, and those times micro-batches, up to which an order of more stages is looked at."""

SMALL = 1 / 8
"""Share of a step, in micro-batches, below which an update is none to an order."""

SHORT = 1 / 16
"""Share of a stage's seconds below which a message is none to an order."""

MOST_STAGES = 1024
"""Stages of the longest pipeline whose messages are told apart."""

WORTH = 0.01
"""Share of a step that a cut must save by this measure to be looked at."""

BALANCED = ("naive", "gpipe")
"""Schedules that wait for the slowest stage alone, which a balanced cut has: no order is better."""

QUICKER = {
    **dict.fromkeys(("zb_1p", "zb_auto"), "zb_h1"),
    **dict.fromkeys(("zb_2p", AUTO), "zb_h2"),
}
"""Schedules that are written faster than those whose order is itself looked for.

What is found by machine (`auto`) may have backwards in two and what memory there is, as ZB-H2.
"""


class Order(NamedTuple):
    """In what order stages run: a schedule's name, ranks, chunks, micro-batches.

    `rounds` are those of pp micro-batches behind these, which take as long as the last one.
    `update` is an update of all layers over a micro-batch's forward and backward through them,
    `message` a message between neighbours over the same, which keeps its sender where it `blocks`.
    """

    schedule: str
    pp: int
    v: int
    num_microbatches: int
    rounds: int
    update: float = 0.0
    message: float = 0.0
    blocks: bool = False


def noticed(update: Array, num_microbatches: Ints) -> Array:
    """Updates over a micro-batch's seconds, as orders tell them apart, (B,): powers of two.

    One that is a small share of the step is none.
    """
    power = np.exp2(np.rint(np.log2(np.maximum(update, SMALL))))
    return np.where(update < SMALL * num_microbatches, 0.0, power)


def sent(message: Array, stages: Ints) -> Array:
    """Messages over a micro-batch's seconds, as orders tell them apart, (B,): powers of two.

    One that is a small share of a stage's seconds is none.
    """
    power = np.exp2(np.rint(np.log2(np.maximum(message, SHORT / MOST_STAGES))))
    return np.where(message * stages < SHORT, 0.0, power)


def order_of(plan: Plan, update: float = 0.0, message: float = 0.0) -> Order | None:
    """The order that a plan's cut is judged by, with an update and messages; None without one."""
    written = plan.actions is not None or plan.action_times is not None
    name = QUICKER.get(plan.schedule, plan.schedule)
    ordered = name in SCHEDULE_NAMES and name not in BALANCED
    count, few = plan.num_microbatches, FEW * plan.pp
    if written or not ordered or _long(plan.num_stages, min(count, few)) or count < 2:
        return None
    rounds = ROUNDS if count > few else 0
    blocks = message > 0.0 and not plan.overlap_p2p
    return Order(name, plan.pp, plan.v, min(count, few), rounds, update, message, blocks)


def _long(stages: int, count: int) -> bool:
    """Whether an order would take a search too long."""
    return stages > STAGES and (stages > MORE or stages * count > LONG)


@dataclass(frozen=True)
class Judge:
    """How long a step takes with a cut of a chain, by the order and its actions' shares.

    `parameters` (N,) are the items' shares of what is updated, where the order has an update.
    """

    order: Order
    chain: Chain
    shares: Shares = THIRDS
    parameters: Array | None = None

    def shortest(self, cuts: Sequence[Cut]) -> Cut:
        """The one of some cuts with the shortest step."""
        return tuple(self._best(np.array(cuts))[0].tolist())

    def descended(self, cuts: Sequence[Cut]) -> Cut | None:
        """The cut on the way down from the best of several; None where it is hardly better.

        A cut's score is its step, then the sum of its stages' squares.
        """
        first, begin = self._best(np.array(cuts))
        cut, least = first, begin
        while True:
            other, score = self._best(_moved(cut))
            if score >= least:
                break
            cut, least = other, score
        return tuple(cut.tolist()) if least[0] < (1.0 - WORTH) * begin[0] else None

    def _best(self, cuts: Ints) -> tuple[Ints, tuple[float, float]]:
        """The first of K cuts (K, S) with the least score, and that."""
        ends = np.cumsum(cuts, axis=1).T
        stages = np.diff(_sums(self.chain.seconds)[ends], axis=0, prepend=0.0)
        steps, squares = self._steps(stages, self._updates(ends)), (stages**2).sum(axis=0)
        first = int(np.lexsort((squares, steps))[0])
        return cuts[first], (float(steps[first]), float(squares[first]))

    def _updates(self, ends: Ints) -> Array | None:
        """What updates of stages that end so take, (S, K)."""
        if not self.order.update or self.parameters is None:
            return None
        whole = self.order.update * self.chain.seconds.sum()
        return np.asarray(np.diff(whole * _sums(self.parameters)[ends], axis=0, prepend=0.0))

    def _steps(self, stages: Array, updates: Array | None) -> Array:
        """When the last update ends with stages that take so long, (S, K) -> (K,)."""
        order, count = self.order, self.order.num_microbatches
        clock = self._after(count, stages)
        steps = last = clock.max(axis=0)
        if updates is not None:
            steps = (clock + self._on_ranks(updates)).max(axis=0)
        if order.rounds:
            before = self._after(count - order.pp, stages).max(axis=0)
            steps = steps + order.rounds * (last - before)
        return np.asarray(np.round(steps, 6))

    def _compiled(self, count: int) -> CompiledSchedule:
        return compiled_schedule(self.order.schedule, self.order.pp, count, self.order.v)

    def _on_ranks(self, stages: Array) -> Array:
        """Sums of what stages take on their ranks, (S, K) -> (p, K)."""
        schedule = self._compiled(self.order.num_microbatches).schedule
        return on_ranks(schedule.in_copies(stages), schedule)

    def _after(self, count: int, stages: Array) -> Array:
        """When each rank's last action of so many micro-batches ends, (p, K)."""
        compiled = self._compiled(count)
        copies = compiled.schedule.in_copies(stages)
        seconds = {kind: share * copies for kind, share in self._kinds.items()}
        hops = np.full((len(copies) - 1, 1), self.order.message * self.chain.seconds.sum())
        times = ClassTimes.on(compiled.schedule, seconds, hops)
        return run(compiled, times.blocking() if self.order.blocks else times).clock

    @cached_property
    def _kinds(self) -> dict[Kind, float]:
        """What share of a stage's seconds each kind of action takes."""
        forward, inner, weight = self.shares
        return {Kind.F: forward, Kind.B: inner + weight, Kind.I: inner, Kind.W: weight}


def _sums(each: Array) -> Array:
    """Sums of what is before each item and of all, (N + 1,)."""
    return np.concatenate([[0.0], np.cumsum(each)])


def _moved(cut: Ints) -> Ints:
    """Cuts with an item of one stage on another, of which each keeps one, and the cut, (K, S)."""
    giver, change = _moves(len(cut))
    return np.concatenate([cut[None], cut + change[cut[giver] > 1]])


@cache
def _moves(stages: int) -> tuple[Ints, Ints]:
    """All moves of an item: the stage that gives it (K,), and what changes (K, S)."""
    apart = np.abs(np.subtract.outer(np.arange(stages), np.arange(stages)))
    reach = stages if stages <= STAGES else STAGES**2 // (2 * stages)
    giver, taker = np.nonzero((apart > 0) & (apart <= max(reach, 1)))
    each = np.eye(stages, dtype=np.int64)
    return giver, each[taker] - each[giver]
