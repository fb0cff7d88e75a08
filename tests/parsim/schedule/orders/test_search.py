"""Orders that are searched for: proven optima, every order of small cases, limits, named ones."""

from __future__ import annotations

import random
from itertools import product
from math import inf

import pytest

from parsim.schedule import Action, Kind, Schedule, build_schedule
from parsim.schedule.orders.list_order import makespan
from parsim.schedule.orders.search import lower_bound, search_order
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Work
from tests.parsim.schedule.orders.orders_by_hand import Lengths, made, work

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
    result = search_order(ours)
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
    every = product(*(_all_rows(rank, m, limit, Kind.B) for rank, limit in enumerate(limits)))
    shortest = min(makespan(ours, rows) for rows in every)
    assert result.proven
    assert result.makespan == shortest >= lower_bound(ours)


@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_a_small_case_with_backwards_in_two_is_shorter(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [tuple(rng.randint(1, 5) * 1.0 for _ in range(2)) for _ in range(3)]
    limits = (rng.randint(1, 2), rng.randint(1, 2))
    ours = work(lengths[0], lengths[1], 3, limits, lengths[2], float(rng.randint(0, 1)))
    result = search_order(ours)
    shortest = inf
    for rows in product(*(_all_rows(rank, 3, limit, Kind.I) for rank, limit in enumerate(limits))):
        shortest = min(shortest, _end(rows, ours))
    assert result.proven
    assert result.makespan == shortest >= lower_bound(ours)


def _end(rows: Rows, ours: Work) -> float:
    """When an order ends, which is never where ranks wait for one another."""
    try:
        return made(Schedule.from_ranks(rows, name="any"), ours)
    except AssertionError:
        return inf


def _all_rows(rank: int, m: int, limit: int, back: Kind) -> Rows:
    """All orders of a rank's F and B, or F, I and W, none before its own, within the limit."""
    rows: list[tuple[Action, ...]] = [()]
    kinds = (Kind.F, Kind.B) if back == Kind.B else (Kind.F, Kind.I, Kind.W)
    for _ in range(len(kinds) * m):
        rows = [
            (*row, Action(rank, kind, done[kind]))
            for row in rows
            for done in [{kind: sum(a.kind == kind for a in row) for kind in kinds}]
            for kind, before in zip(kinds, (None, *kinds), strict=False)
            if done[kind] < m
            and (before is None or done[kind] < done[before])
            and (before is not None or done[Kind.F] - done[kinds[-1]] < limit)
        ]
    return tuple(rows)
