"""The best order with the backward in two, for stages of any lengths: warm-ups, then W in the gaps.

    warm-up of rank r: c_r forwards, then I and F in turn; each W where it costs least (weight_fill)

Changed are the warm-ups, of a rank or of all above or below it, as long as the end comes earlier;
the first are those of other orders. Limits count micro-batches from F to W.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.weight_fill import POLICIES, ActionTimes, Filled, Rows, fill

FILLED = 70_000
"""Actions of all orders that are filled in a search, by default: about a second."""

STARTS = 3
"""The best so many of the given orders are improved."""

_ROUNDING = 1e-9

Warmups = tuple[int, ...]
"""Forwards of each rank before its first I."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWork:
    """Lengths of F, I and W of each stage (stage r on rank r), and what each rank may hold."""

    times: Sequence[ActionTimes]
    num_microbatches: int
    limits: Sequence[int]


def search_split(work: SplitWork, starts: Iterable[Rows], filled: int = FILLED) -> Filled:
    """The order whose last action ends first, from the warm-ups of given orders on.

    Args:
        work: what has to be ordered.
        starts: orders of which the warm-ups are taken.
        filled: actions of all orders that may be tried.
    """
    rows = list(starts)
    fills = max(len(rows), filled // (3 * work.num_microbatches * len(work.times)))
    search = _Search(work, fills)
    ranked = sorted({search.tried(_warmups(each)) for each in rows})
    bound, best = split_bound(work) * (1.0 + _ROUNDING), ranked[0]
    for start in ranked[:STARTS]:
        here, better = start, True
        while better and search.left > 0 and best[0] > bound:
            nearest = min(map(search.tried, _neighbours(here[1])))
            better = nearest[0] < here[0] * (1.0 - _ROUNDING)
            here = nearest if better else here
            best = min(best, here)
    return search.filled[best[1]]


def split_bound(work: SplitWork) -> float:
    """No order ends earlier: the forwards above a stage, and all of its own work."""
    head, bound = 0.0, 0.0
    for times in work.times:
        each = times.forward + times.backward
        bound = max(bound, head + work.num_microbatches * each)
        head += times.forward + times.message
    return bound


def _neighbours(warmups: Warmups) -> Iterator[Warmups]:
    """One forward more or less on one rank, on all above it, or on all below it."""
    ranks = range(len(warmups))
    for rank in ranks:
        for some in ({rank}, set(ranks[: rank + 1]), set(ranks[rank:])):
            for change in (1, -1):
                yield tuple(count + change * (r in some) for r, count in enumerate(warmups))


def in_turn(rank: int, warmup: int, m: int) -> tuple[Action, ...]:
    """F of the warm-up, then I and F in turn."""
    row = [Action(rank, Kind.F, mb) for mb in range(warmup)]
    for mb in range(m):
        row.append(Action(rank, Kind.I, mb))
        if warmup + mb < m:
            row.append(Action(rank, Kind.F, warmup + mb))
    return tuple(row)


def _warmups(rows: Rows) -> Warmups:
    """How many forwards each rank runs before anything else."""
    counts = []
    for row in rows:
        first = next(i for i, action in enumerate(row) if action.kind != Kind.F)
        counts.append(first)
    return tuple(counts)


class _Search:
    """Orders that have been filled, by their warm-ups, and how many more may be."""

    def __init__(self, work: SplitWork, fills: int) -> None:
        self.work, self.left = work, fills
        self.filled: dict[Warmups, Filled] = {}

    def tried(self, warmups: Warmups) -> tuple[float, Warmups]:
        """The end of the best filling, and the warm-ups as the limits allow them."""
        work = self.work
        most = (min(limit, work.num_microbatches) for limit in work.limits)
        pairs = list(zip(warmups, most, strict=True))
        legal = tuple(max(1, min(count, limit)) for count, limit in pairs)
        # a rank warms up with no fewer forwards than the one below it, or that one waits for ever
        legal = tuple(max(legal[rank:]) for rank in range(len(legal)))
        if any(count > limit for count, (_, limit) in zip(legal, pairs, strict=True)):
            return (inf, legal)
        if legal not in self.filled:
            if self.left <= 0:
                return (inf, legal)
            self.left -= 1
            order = tuple(in_turn(r, count, work.num_microbatches) for r, count in enumerate(legal))
            fills = (
                fill(order, range(len(order)), work.times, limit=work.limits, policy=policy)
                for policy in POLICIES
            )
            self.filled[legal] = min(fills, key=lambda filled: filled.makespan)
        return (self.filled[legal].makespan, legal)
