"""Orders with the backward in two: legal, within limits, and rarely longer than any named one."""

from __future__ import annotations

import random

import pytest

from parsim.schedule import Action, ActionTimes, Kind, Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.split_search import SplitWork, search_split, split_bound

NAMED = ("1f1b", "eager_1f1b", "gpipe", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")


def made(schedule: Schedule, times: list[ActionTimes]) -> float:
    """End of the last action, one by one."""
    ends: dict[Action, float] = {}
    clock, at, last = [0.0] * schedule.pp, [0] * schedule.pp, schedule.pp - 1
    while any(at[rank] < len(row) for rank, row in enumerate(schedule.ranks)):
        for rank, row in enumerate(schedule.ranks):
            while at[rank] < len(row):
                stage, kind, mb = row[at[rank]]
                need = None
                if kind == Kind.F and stage:
                    need = Action(stage - 1, Kind.F, mb)
                elif kind in (Kind.B, Kind.I):
                    back = Action(stage + 1, Kind.B, mb)
                    need = Action(stage, Kind.F, mb) if stage == last else back
                if need is not None and need not in ends:
                    break
                start = max(clock[rank], ends[need] if need else 0.0)
                clock[rank] = start + _length(times[stage], kind)
                if kind != Kind.W:
                    name = Kind.B if kind == Kind.I else kind
                    ends[Action(stage, name, mb)] = clock[rank]
                at[rank] += 1
    return max(clock)


def _length(times: ActionTimes, kind: Kind) -> float:
    whole = (times.forward, times.backward, times.backward_input, times.backward_weight)
    return whole[kind]


def held(schedule: Schedule) -> list[int]:
    return [max(map(sum, counts)) for counts in inflight_counts(schedule)]


def test_uneven_stages_are_ordered_better_than_by_any_named_schedule() -> None:
    rng = random.Random(7)
    shorter, cases = 0, 24
    for _ in range(cases):
        p, m = rng.choice((2, 3, 4, 6)), rng.choice((4, 8, 16))
        times = [
            ActionTimes(rng.uniform(0.6, 1.6), rng.uniform(0.6, 1.6), rng.uniform(0.4, 1.4))
            for _ in range(p)
        ]
        limits = [rng.choice((p, p + 1, 2 * p))] * p
        named = [build_schedule(name, pp=p, num_microbatches=m) for name in NAMED]
        legal = [s for s in named if all(n <= k for n, k in zip(held(s), limits, strict=True))]
        best = min(made(schedule, times) for schedule in legal)
        work = SplitWork(times=times, num_microbatches=m, limits=limits)
        result = search_split(work, [schedule.ranks for schedule in legal])
        schedule = Schedule.from_ranks(result.rows, name="found.csv")
        check_schedule(schedule)
        assert max(held(schedule)) <= limits[0]
        assert result.makespan == pytest.approx(made(schedule, times), rel=1e-12)
        assert split_bound(work) * (1 - 1e-12) <= result.makespan <= best * 1.01
        # what is at the bound already cannot be shorter
        shorter += result.makespan < best * (1 - 1e-9) or best <= split_bound(work) * (1 + 1e-9)
    assert shorter > cases / 2


def test_the_same_again() -> None:
    times = [ActionTimes(1.0, 0.5 + rank, 1.0) for rank in range(3)]
    work = SplitWork(times=times, num_microbatches=8, limits=[4, 4, 4])
    starts = [build_schedule("zb_h1", pp=3, num_microbatches=8).ranks]
    assert search_split(work, starts) == search_split(work, starts)
