"""Orders of large and uneven cases, and what cannot be ordered."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from parsim.errors import ScheduleError
from parsim.schedule import Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.list_order import best_order
from parsim.schedule.orders.search import lower_bound, search_order
from parsim.schedule.orders.work import Work
from tests.parsim.schedule.orders.orders_by_hand import made, work

NAMED = ("1f1b", "eager_1f1b", "gpipe", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")


def in_flight(schedule: Schedule) -> list[int]:
    return [max(map(sum, counts)) for counts in inflight_counts(schedule)]


@pytest.mark.parametrize("seed", range(4))
def test_large_cases_are_legal_no_worse_than_1f1b_and_the_same_again(seed: int) -> None:
    rng = random.Random(seed)
    p, m = rng.choice([(4, 16), (8, 16), (6, 12)])
    forward = tuple(rng.uniform(0.5, 2.0) for _ in range(p))
    backward = tuple(rng.uniform(0.5, 4.0) for _ in range(p))
    limits = tuple(rng.randint(p - rank, 2 * p) for rank in range(p))
    ours = work(forward, backward, m, limits)
    first = build_schedule("1f1b", pp=p, num_microbatches=m)
    result = search_order(ours, run=100_000, branched=100_000)
    assert result == search_order(ours, run=100_000, branched=100_000)
    assert lower_bound(ours) * (1 - 1e-12) <= result.makespan <= made(first, ours) * (1 + 1e-12)
    assert 0.0 <= result.gap < 1.0
    schedule = Schedule.from_ranks(result.rows, name="found.csv")
    check_schedule(schedule)
    assert result.makespan == pytest.approx(made(schedule, ours), rel=1e-12)
    assert all(n <= limit for n, limit in zip(in_flight(schedule), limits, strict=True))


def test_uneven_stages_are_ordered_better_than_by_any_named_schedule() -> None:
    """At least 9 of 10 are shorter than the best named order that fits, or that one is optimal."""
    rng = random.Random(7)
    shorter = optimal = 0
    for _ in range(10):
        p, m = rng.choice((2, 3, 4, 6)), rng.choice((4, 8, 16))
        ahead, back, weight = (
            tuple(rng.uniform(low, low + 1.0) for _ in range(p)) for low in (0.6, 0.6, 0.4)
        )
        limits = (rng.choice((p, p + 1, 2 * p)),) * p
        ours = work(ahead, back, m, limits, weight, rng.choice((0.0, 0.1)))
        named = [build_schedule(name, pp=p, num_microbatches=m) for name in NAMED]
        best = min(
            made(schedule, ours) for schedule in named if max(in_flight(schedule)) <= limits[0]
        )
        result = search_order(ours, run=300_000, branched=0)
        schedule = Schedule.from_ranks(result.rows, name="found.csv")
        check_schedule(schedule)
        assert max(in_flight(schedule)) <= limits[0]
        assert result.makespan == pytest.approx(made(schedule, ours), rel=1e-12)
        assert lower_bound(ours) * (1 - 1e-12) <= result.makespan
        assert result.makespan <= best * (1 + 1e-9)
        shorter += result.makespan < best * (1 - 1e-9)
        optimal += best <= lower_bound(ours) * (1 + 1e-9)
    assert shorter >= 6
    assert shorter + optimal >= 9


def test_a_backward_of_no_length_is_ordered_too() -> None:
    """Nobody needs the gradient of the model's input: torch has no I on the first stage."""
    ours = work((1.0, 1.0), (0.0, 1.0), 4, (3, 3), (2.0, 1.0))
    result = search_order(ours)
    assert result.proven
    assert result.makespan == 13.0 == made(Schedule.from_ranks(result.rows, name="x"), ours)


def test_refusals() -> None:
    with pytest.raises(ScheduleError, match=r"limits \[0, 1\] of micro-batches in flight"):
        search_order(work((1, 1), (1, 1), 2, (0, 1)))
    two = Work(
        stage_rank=(0, 1, 1, 0),
        num_microbatches=2,
        forward=[1.0] * 4,
        backward=[1.0] * 4,
        limits=[4, 4],
    )
    with pytest.raises(ScheduleError, match="stage r on rank r alone"):
        search_order(two)
    with pytest.raises(ScheduleError, match="a limit of 1 chunks in flight on rank 0 is too small"):
        best_order(replace(two, limits=[1, 2]))
