"""Orders that are searched for: proven optima, every order of small cases, limits, determinism."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from parsim.errors import ScheduleError
from parsim.schedule import Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.job_shop import Shop, Turns
from parsim.schedule.orders.list_order import Work, list_order, makespan
from parsim.schedule.orders.search import lower_bound, search_order

Lengths = tuple[float, ...]


def work(forward: Lengths, backward: Lengths, m: int, limits: tuple[int, ...]) -> Work:
    return Work(
        stage_rank=range(len(forward)),
        num_microbatches=m,
        forward=forward,
        backward=backward,
        limits=limits,
    )


PROVEN = [
    ((1, 3, 2, 1), (2, 5, 4, 1), 6, (4, 3, 2, 1), 53.0, 55.0),
    ((1, 3, 2, 1), (2, 5, 4, 1), 6, (6, 6, 6, 6), 51.0, 55.0),
    ((1, 2, 1), (2, 4, 2), 4, (3, 2, 1), 28.0, 28.0),
    ((2, 1, 1), (4, 2, 2), 4, (3, 2, 1), 26.0, 26.0),
    ((1, 1, 2), (2, 2, 4), 4, (3, 2, 1), 30.0, 30.0),
]
"""F, B, m, limits, the optimum that a constraint solver (CP-SAT) has proven, and 1F1B's time."""


@pytest.mark.parametrize(("forward", "backward", "m", "limits", "optimum", "named"), PROVEN)
def test_proven_optima(
    forward: Lengths,
    backward: Lengths,
    m: int,
    limits: tuple[int, ...],
    optimum: float,
    named: float,
) -> None:
    ours = work(forward, backward, m, limits)
    first = build_schedule("1f1b", pp=len(forward), num_microbatches=m).ranks
    assert makespan(ours, first) == named
    result = search_order(ours, [first])
    assert (result.makespan, result.bound, result.proven, result.gap) == (
        optimum,
        optimum,
        True,
        0.0,
    )
    assert makespan(ours, result.rows) == optimum


@pytest.mark.parametrize("seed", range(15))
def test_no_order_of_a_small_case_is_shorter(seed: int) -> None:
    rng = random.Random(seed)
    p, m = (3, 3) if seed % 3 == 0 else (2, 4)
    lengths = [tuple(rng.randint(1, 5) * 1.0 for _ in range(p)) for _ in range(2)]
    limits = tuple(rng.randint(1, m) for _ in range(p))
    ours = work(lengths[0], lengths[1], m, limits)
    result = search_order(ours)
    shop = Shop(ours)
    every = product(*(_all_turns(m, limit) for limit in limits))
    shortest = min(shop.timed(list(turns)).makespan for turns in every)
    assert result.proven
    assert result.makespan == shortest >= lower_bound(ours)


def _all_turns(m: int, limit: int) -> list[list[bool]]:
    """All sequences of m F and m B, no B before its F, no more than `limit` held."""
    turns: Turns = []
    for places in combinations(range(2 * m), m):
        row = [i in places for i in range(2 * m)]
        held = [sum(1 if ahead else -1 for ahead in row[: i + 1]) for i in range(2 * m)]
        if min(held) >= 0 and max(held) <= limit:
            turns.append(row)
    return turns


@pytest.mark.parametrize("seed", range(6))
def test_large_cases_are_legal_no_worse_than_their_starts_and_the_same_again(seed: int) -> None:
    rng = random.Random(seed)
    p, m = rng.choice([(4, 16), (8, 16), (6, 12)])
    forward = tuple(rng.uniform(0.5, 2.0) for _ in range(p))
    backward = tuple(rng.uniform(0.5, 4.0) for _ in range(p))
    limits = tuple(rng.randint(p - rank, 2 * p) for rank in range(p))
    ours = work(forward, backward, m, limits)
    first = build_schedule("1f1b", pp=p, num_microbatches=m).ranks
    result = search_order(ours, [first], evaluations=40_000, branched=400_000)
    again = search_order(ours, [first], evaluations=40_000, branched=400_000)
    assert result == again
    assert lower_bound(ours) * (1 - 1e-12) <= result.makespan <= makespan(ours, first)
    assert 0.0 <= result.gap < 1.0
    schedule = Schedule.from_ranks(result.rows, name="found.csv")
    check_schedule(schedule)
    for rank, counts in enumerate(inflight_counts(schedule)):
        assert max(map(sum, counts)) <= limits[rank]


def test_refusals() -> None:
    with pytest.raises(ScheduleError, match=r"limits \[0, 1\] of micro-batches in flight"):
        Shop(work((1, 1), (1, 1), 2, (0, 1)))
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
        list_order(
            Work(
                stage_rank=(0, 1, 1, 0),
                num_microbatches=2,
                forward=[1.0] * 4,
                backward=[1.0] * 4,
                limits=[1, 2],
            ),
            lambda action: (0.0,),
        )
