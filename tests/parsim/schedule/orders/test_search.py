"""Orders that are searched for: proven optima, every order of small cases, limits, named ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, permutations, product
from math import inf

import pytest

from parsim.errors import ScheduleError
from parsim.schedule import Action, Kind, Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.dispatch import Shop
from parsim.schedule.orders.list_order import best_order, makespan
from parsim.schedule.orders.search import lower_bound, search_order
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Work
from parsim.schedule.replicas import in_order
from parsim.schedule.rows_csv import write_rows

Lengths = tuple[float, ...]


NAMED = ("1f1b", "eager_1f1b", "gpipe", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")


def work(
    forward: Lengths,
    backward: Lengths,
    m: int,
    limits: tuple[int, ...],
    weight: Lengths = (),
    message: float = 0.0,
) -> Work:
    return Work(
        stage_rank=range(len(forward)),
        num_microbatches=m,
        forward=forward,
        backward=backward,
        weight=weight,
        limits=limits,
        message=message,
    )


def made(schedule: Schedule, ours: Work) -> float:
    """End of the last action, one by one; I and W where the work has them, B is both."""
    ends: dict[tuple[int, bool, int], float] = {}
    clock, at, last = [0.0] * schedule.pp, [0] * schedule.pp, schedule.pp - 1
    while any(at[rank] < len(row) for rank, row in enumerate(schedule.ranks)):
        before = list(at)
        for rank, row in enumerate(schedule.ranks):
            while at[rank] < len(row):
                stage, kind, mb = row[at[rank]]
                back = kind in (Kind.B, Kind.I)
                need, hop = None, ours.message
                if kind == Kind.F and stage:
                    need = (stage - 1, True, mb)
                elif back:
                    need = (stage, True, mb) if stage == last else (stage + 1, False, mb)
                    hop = 0.0 if stage == last else hop
                if need is not None and need not in ends:
                    break
                start = max(clock[rank], ends[need] + hop if need else 0.0)
                clock[rank] = start + _length(ours, stage, kind)
                if kind != Kind.W:
                    ends[stage, not back, mb] = clock[rank]
                at[rank] += 1
        assert at != before, "the order hangs"
    return max(clock)


def _length(ours: Work, stage: int, kind: Kind) -> float:
    weight = ours.weight[stage] if ours.weight else 0.0
    whole = ours.backward[stage] + weight
    return (ours.forward[stage], whole, ours.backward[stage], weight)[kind]


def in_flight(schedule: Schedule) -> list[int]:
    return [max(map(sum, counts)) for counts in inflight_counts(schedule)]


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


@pytest.mark.parametrize("name", ["hanayo", "chimera"])
@pytest.mark.parametrize("message", [0.01, 0.1])
def test_short_messages_make_no_listed_order_worse_than_one_without(
    name: str, message: float
) -> None:
    """An order that was listed as if messages took no time is one of those that are tried."""
    v, times = 2 if name == "hanayo" else 1, (1.0, 1.0, 1.0, message, 1.0)
    short = build_schedule(name, pp=8, num_microbatches=16, v=v)
    told = build_schedule(name, pp=8, num_microbatches=16, v=v, times=times)
    one_each = [1.0] * short.num_stages
    ours = Work(
        stage_rank=short.stage_rank,
        num_microbatches=16,
        forward=one_each,
        backward=[2.0] * short.num_stages,
        limits=[16 * v] * 8,
        message=message,
        copies=short.copies,
    )
    assert makespan(ours, told.ranks) <= makespan(ours, short.ranks)


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
