"""ZB-1p, ZB-2p and zb_auto: zero-bubble schedules searched for under a limit of memory.

Each rank warms up with some forwards, then takes I and F in turn, and its W fill the gaps that are
left. Tried are several warm-ups and three ways to fill (`weight_fill`); kept is what has the
shortest span of a rank, the measure of arXiv 2401.10241, section 3. Three ranks, five micro-batches
in 1F1B's memory, one slot per action:

    rank 0 | 0F0 0F1 0F2 ... ... 0I0 0W0 0F3 0I1 0W1 0F4 0I2 0W2 0I3 0W3 0I4 0W4
    rank 1 | ... 1F0 1F1 ... 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1F4 1I3 1W2 1I4 1W3 1W4
    rank 2 | ... ... 2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2F4 2I4 2W2 2W3 2W4

The limit is the same on every rank, in micro-batches from F to W: pp for ZB-1p and 2 pp for ZB-2p.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf

from parsim.schedule.actions import Action, Kind, require_positive
from parsim.schedule.orders.long_rows import repeating, stretched
from parsim.schedule.orders.weight_fill import EQUAL, ActionTimes, Filled, Rows, best_fill
from parsim.schedule.schedule import Schedule

LOOK = 4
"""A warm-up is chosen on LOOK x pp micro-batches, beyond which more only repeat the middle."""


def zb_1p(pp: int, num_microbatches: int, times: ActionTimes = EQUAL) -> Schedule:
    """Build ZB-1p: the shortest found within 1F1B's memory, pp micro-batches on every rank.

    Raises:
        ScheduleError: a size is below 1.
    """
    return _searched("zb_1p", pp, num_microbatches, times, (pp,))


def zb_2p(pp: int, num_microbatches: int, times: ActionTimes = EQUAL) -> Schedule:
    """Build ZB-2p: the shortest found within twice 1F1B's memory, zero bubble within a rank.

    Raises:
        ScheduleError: a size is below 1.
    """
    return _searched("zb_2p", pp, num_microbatches, times, (2 * pp,))


def zb_auto(pp: int, num_microbatches: int, times: ActionTimes = EQUAL) -> Schedule:
    """Build the shortest schedule of five limits from 1 to 2 times 1F1B's memory.

    Among equally short ones it is the one of the smallest limit.

    Raises:
        ScheduleError: a size is below 1.
    """
    limits = tuple(sorted({pp + quarter * pp // 4 for quarter in range(5)}))
    return _searched("zb_auto", pp, num_microbatches, times, limits)


def _searched(name: str, pp: int, m: int, times: ActionTimes, limits: tuple[int, ...]) -> Schedule:
    require_positive(pp=pp, num_microbatches=m)
    warmup, limit = _shortest(pp, min(m, LOOK * pp), times, limits)

    def build(count: int) -> Rows:
        return _filled(warmup, count, times, limit).rows

    alike = times == EQUAL
    rows = repeating(build, LOOK * pp, m) if alike else stretched(build, pp, m)
    return Schedule(name=name, ranks=rows, stage_rank=tuple(range(pp)), num_microbatches=m)


@lru_cache(maxsize=256)
def _shortest(
    pp: int, m: int, times: ActionTimes, limits: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """(warm-up, limit) of the shortest span; the smallest limit's, then that which ends first."""
    work = m * (times.forward + times.backward)
    best, chosen = (inf, inf), ((1,) * pp, limits[0])
    for limit in limits:
        if best[0] <= work:
            break  # no rank is ever idle: nothing is shorter
        tried = {_lengths(each, m, times, limit): each for each in _latest_first(pp, times, limit)}
        if min(tried)[0] < best[0]:
            best = min(tried)
            chosen = (tried[best], limit)
    return chosen


@lru_cache(maxsize=4096)
def _lengths(
    warmup: tuple[int, ...], m: int, times: ActionTimes, limit: int
) -> tuple[float, float]:
    """(span, makespan) with a warm-up: several schedules, and all of one pipeline, try the same."""
    filled = _filled(warmup, m, times, limit)
    return filled.span, filled.makespan


def _filled(warmup: tuple[int, ...], m: int, times: ActionTimes, limit: int) -> Filled:
    order = tuple(_in_turn(rank, min(count, m), m) for rank, count in enumerate(warmup))
    return best_fill(order, range(len(warmup)), times, limit=limit)


def _in_turn(rank: int, warmup: int, m: int) -> tuple[Action, ...]:
    """F of the warm-up, then I and F in turn."""
    row = [Action(rank, Kind.F, mb) for mb in range(warmup)]
    for mb in range(m):
        row.append(Action(rank, Kind.I, mb))
        if warmup + mb < m:
            row.append(Action(rank, Kind.F, warmup + mb))
    return tuple(row)


def _warmups(pp: int, times: ActionTimes, limit: int) -> Iterator[tuple[int, ...]]:
    """Forwards before the first I on each rank, more on each than on the one below it."""
    for slope in (1, 2):
        yield tuple(min(slope * (pp - 1 - r) + 1, limit - r) for r in range(pp))
    for share in (0.0, 0.5, 1.0):
        yield _until_first_gradient(pp, times, limit, share)


def _latest_first(pp: int, times: ActionTimes, limit: int) -> list[tuple[int, ...]]:
    """The warm-ups to try, the first one last: of equally long ones the first is kept."""
    return list(dict.fromkeys(_warmups(pp, times, limit)))[::-1]


def _until_first_gradient(pp: int, times: ActionTimes, limit: int, share: float) -> tuple[int, ...]:
    """Warm-ups of all forwards that run before the first gradient arrives, by rank.

    One more forward may end later by `share`.

    The first forward is on rank r at r (F + message); each rank's first I ends after the rank's
    below it and a message, or after its own warm-up.
    """
    counts = [1]
    hop = times.forward + times.message
    ends = (pp - 1) * hop + times.forward + times.backward_input
    for rank in reversed(range(pp - 1)):
        arrival, clock, count = ends + times.message, rank * hop + times.forward, 1
        while clock + (1.0 - share) * times.forward <= arrival and count < limit - rank:
            clock, count = clock + times.forward, count + 1
        count = max(count, counts[-1] + 1)
        counts.append(count)
        ends = max(arrival, rank * hop + count * times.forward) + times.backward_input
    return tuple(reversed(counts))
