"""Orders of stages with replicas of their own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, permutations, product

import pytest

from parsim.errors import ScheduleError
from parsim.schedule import Action, Kind
from parsim.schedule.orders.dispatch import Shop
from parsim.schedule.orders.search import lower_bound, search_order
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Work
from parsim.schedule.replicas import in_order
from parsim.schedule.rows_csv import write_rows
from tests.parsim.schedule.orders.orders_by_hand import work


def ended(ours: Work, rows: Rows) -> float:
    """End of the last action of replicas' rows, each behind the action whose result it needs."""
    replicas, ends = ours.replicas, dict[Action, float]()
    clock = [0.0] * replicas.num_ranks
    for action in in_order(rows, replicas):
        stage, kind, mb = action
        step = -1 if kind == Kind.F else 1
        turns = kind == Kind.B and stage == replicas.stages - 1
        source = Action(stage, Kind.F, mb) if turns else Action(stage + step, kind, mb)
        rank, start = replicas.rank(stage, mb), ends.get(source, 0.0)
        if source in ends and not turns:
            start += ours.hops[kind == Kind.B][min(stage, stage + step)]
        start = max(clock[rank], start)
        length = ours.forward if kind == Kind.F else ours.backward
        clock[rank] = ends[action] = start + length[stage]
    return max(clock)


def unequal(seed: int) -> Work:
    """Two or three stages with one to three replicas, whose borders differ."""
    rng = random.Random(seed)
    p = rng.choice((2, 3))
    counts = tuple(rng.choice((1, 2, 3)) for _ in range(p))
    ahead, back = (tuple(rng.uniform(0.0, 0.5) for _ in range(p - 1)) for _ in (0, 1))
    return Work(
        stage_rank=range(p),
        num_microbatches=6,
        forward=tuple(counts[s] * rng.uniform(0.5, 1.5) for s in range(p)),
        backward=tuple(counts[s] * rng.uniform(1.0, 3.0) for s in range(p)),
        limits=tuple(rng.randint(1, 4) for _ in range(p)),
        counts=counts,
        borders=(ahead, back),
    )


@pytest.mark.parametrize("seed", range(12))
def test_orders_of_replicas_end_when_they_say_and_hold_what_they_may(seed: int) -> None:
    ours = unequal(seed)
    result = search_order(ours)
    assert ended(ours, result.rows) == pytest.approx(result.makespan, rel=1e-12)
    assert lower_bound(ours) <= result.makespan * (1 + 1e-12)
    text = write_rows(result.rows)
    assert ours.replicas.read(text, ours.num_microbatches) == result.rows
    for rank, row in enumerate(result.rows):
        in_use = list(accumulate(1 if kind == Kind.F else -1 for _, kind, _ in row))
        assert max(in_use) <= ours.limits[ours.replicas.stage_of[rank]]


@pytest.mark.parametrize("seed", range(8))
def test_no_order_of_a_few_replicas_is_shorter(seed: int) -> None:
    """All ways in which each replica may mix its F and B."""
    rng = random.Random(100 + seed)
    counts = rng.choice(((2, 1), (1, 2), (2, 1, 2), (1, 2, 1)))
    ours = replace(
        unequal(seed),
        stage_rank=range(len(counts)),
        num_microbatches=4 if len(counts) == 2 else 2,
        forward=tuple(count * rng.uniform(0.5, 1.5) for count in counts),
        backward=tuple(count * rng.uniform(1.0, 3.0) for count in counts),
        limits=tuple(rng.randint(1, 3) for _ in counts),
        counts=counts,
        borders=None,
        message=0.25,
    )
    best = min(ended(ours, rows) for rows in every_order_of_replicas(ours))
    result = search_order(ours)
    assert result.proven
    assert result.makespan == pytest.approx(best, rel=1e-12)


def every_order_of_replicas(ours: Work) -> Iterator[Rows]:
    """All rows within the limits that let every rank go on."""
    shop = Shop(ours)
    each = [
        [
            kinds
            for kinds in set(permutations([0] * count + [1] * count))
            if all(0 <= 2 * n - 2 * sum(kinds[:n]) - n <= limit for n in range(2 * count + 1))
        ]
        for count, limit in zip(shop.each.tolist(), shop.limits.tolist(), strict=True)
    ]
    for chosen in product(*each):
        rows = shop.in_order(chosen)
        with suppress(ScheduleError):
            list(in_order(rows, ours.replicas))
            yield rows


def test_replicas_that_cannot_share_micro_batches_are_refused() -> None:
    with pytest.raises(ScheduleError, match="stage 1 has 3 replicas, which 4 micro-batches"):
        search_order(replace(work((1.0, 1.0), (2.0, 2.0), 4, (2, 2)), counts=(1, 3)))
