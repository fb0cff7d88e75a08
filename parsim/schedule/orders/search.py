"""The best order of forwards and backwards under a limit of memory, for stages of any lengths.

    1  start from given orders, and from those of list scheduling with several priorities
    2  improve the best ones: swap a forward and a backward that are neighbours on a critical path
    3  small cases: branch and bound over all active schedules, which hold an optimum

Micro-batches keep their order on every stage, one stage a rank. Then a rank's row is a sequence of
F and B alone, and a limit of k micro-batches says that its F of micro-batch i comes behind its B of
i - k: the job-shop problem. What is found is compared with a lower bound: no rank can start before
the forwards above it, and none is done before the backwards above it have followed its last one.

Source: Giffler and Thompson 1960 (active schedules), van Laarhoven et al. 1992 (swaps on critical
paths). Leaves out: backwards in two, and orders in which micro-batches overtake one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.branch_and_bound import BranchAndBound
from parsim.schedule.orders.job_shop import ROUNDING, Shop, Turns
from parsim.schedule.orders.list_order import RATIOS, Work, list_order
from parsim.schedule.orders.weight_fill import Rows

EVALUATIONS = 200_000
"""Actions that are timed in a search, by default: less than two seconds."""

BRANCHED = 800_000
"""Actions of all partial schedules that branch and bound looks at, by default: about a second."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The best rows found, when they end, a bound below which no order ends, and if it is proven.

    `proven` says that no order of this kind is shorter.
    """

    rows: Rows
    makespan: float
    bound: float
    proven: bool

    @property
    def gap(self) -> float:
        """The most by which a better order could be shorter, as a share of this one."""
        return 0.0 if self.proven else max(0.0, 1.0 - self.bound / self.makespan)


def search_order(
    work: Work,
    starts: Iterable[Rows] = (),
    *,
    evaluations: int = EVALUATIONS,
    branched: int = BRANCHED,
) -> Searched:
    """Search for the shortest order within the limits; equal input gives equal output.

    Args:
        work: one stage a rank, one copy; lengths may differ from stage to stage.
        starts: orders to begin with, of whole backwards; those that exceed a limit are left out.
        evaluations: actions to time in all.
        branched: actions of all partial schedules that branch and bound may look at.

    Raises:
        ScheduleError: several stages a rank, or a limit below 1.
    """
    shop = Shop(work)
    orders = [shop.turns(rows) for rows in starts]
    orders += [
        shop.turns(list_order(each, priority).rows)
        for each in _variants(work)
        for priority in (_backward_first, _forward_first)
    ]
    legal = [turns for turns in orders if shop.within_limits(turns)]
    bound = lower_bound(work)
    actions = 2 * work.num_microbatches * shop.p
    budget = max(1, evaluations // actions)
    best, length = _improved(shop, legal, bound, budget)
    proven = length <= bound * (1.0 + ROUNDING)
    if not proven:
        search = BranchAndBound(shop, length, branched // actions)
        proven = search.run()
        if search.best is not None:
            best, length = search.best, search.upper
    return Searched(shop.rows(best), length, length if proven else bound, proven)


def lower_bound(work: Work) -> float:
    """No order ends earlier: of each stage its head, its work and its tail; one micro-batch."""
    head, tail, bound, chain = 0.0, 0.0, 0.0, 0.0
    for forward, backward in zip(work.forward, work.backward, strict=True):
        bound = max(bound, head + work.num_microbatches * (forward + backward) + tail)
        head += forward + work.message
        tail += backward + work.message
        chain += forward + backward + 2.0 * work.message
    return max(bound, chain - 2.0 * work.message)


def _variants(work: Work) -> list[Work]:
    """The work with lengths for which list scheduling finds different orders; its own last."""
    ones = [1.0] * len(work.stage_rank)
    alike = [replace(work, forward=ones, backward=[ratio] * len(ones)) for ratio in RATIOS]
    return [*alike, work]


def _backward_first(action: Action) -> tuple[float, ...]:
    return (float(action.kind == Kind.F), float(action.microbatch))


def _forward_first(action: Action) -> tuple[float, ...]:
    return (float(action.kind != Kind.F), float(action.microbatch))


def _improved(
    shop: Shop, starts: Sequence[Turns], bound: float, budget: int
) -> tuple[Turns, float]:
    """Walk from the shortest starts to shorter orders, also over equal and a little longer ones."""
    timed = [shop.timed(turns).makespan for turns in starts]
    ranked = sorted((round(end / bound, 9), n) for n, end in enumerate(timed))
    number = ranked[0][1]
    length = timed[number]
    best, used = starts[number], len(ranked)
    for _, start in ranked[:3]:
        here = [list(turn) for turn in starts[start]]
        tabu: dict[tuple[int, int, bool], int] = {}
        for step in range(budget):
            if used >= budget or length <= bound * (1.0 + ROUNDING):
                break
            swaps = shop.swaps(here, shop.timed(here))
            tried = []
            for rank, i in swaps:
                after = _swapped(here, rank, i)
                used += 1
                tried.append((shop.timed(after).makespan, rank, i))
            allowed = [
                move
                for move in tried
                if tabu.get((move[1], move[2], here[move[1]][move[2]]), -1) < step
                or move[0] < length
            ]
            if not allowed:
                break
            made, rank, i = min(allowed)
            tabu[rank, i, not here[rank][i]] = step + 8
            here = _swapped(here, rank, i)
            if made < length * (1.0 - ROUNDING):
                best, length = here, made
    return best, length


def _swapped(turns: Turns, rank: int, i: int) -> Turns:
    row = list(turns[rank])
    row[i], row[i + 1] = row[i + 1], row[i]
    return [row if number == rank else turn for number, turn in enumerate(turns)]
