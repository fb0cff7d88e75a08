"""Eager 1F1B, looped breadth-first and Hanayo: their closed forms and what they hold."""

from __future__ import annotations

import pytest

from parsim.schedule import Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.sim.schedules.timed import UnitTimes, unit_timeline


def built(name: str, pp: int, m: int, v: int = 1) -> Schedule:
    return build_schedule(name, pp=pp, num_microbatches=m, v=v)


def makespan(schedule: Schedule, times: UnitTimes) -> float:
    return unit_timeline(schedule, times).end


def in_flight(schedule: Schedule) -> list[int]:
    return [max(map(sum, counts)) for counts in inflight_counts(schedule)]


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (4, 8), (4, 16), (8, 32), (3, 9)])
def test_messages_of_eager_1f1b_are_hidden(pp: int, m: int) -> None:
    """2c (p - 1) of exposed messages where 1F1B has 2c [(p - 1) m/p + p - 2], for c <= F."""
    for c in (0.0, 0.25, 1.0):
        times = UnitTimes(1.0, 1.0, 1.0, c)
        ideal = 3 * (m + pp - 1)
        assert makespan(built("eager_1f1b", pp, m), times) == ideal + 2 * c * (pp - 1)
        if m % pp == 0 and c <= 0.25:
            exposed = 2 * c * ((pp - 1) * m / pp + pp - 2)
            assert makespan(built("1f1b", pp, m), times) == pytest.approx(ideal + exposed)


def test_eager_1f1b_holds_nearly_twice_as_much() -> None:
    assert in_flight(built("eager_1f1b", 4, 16)) == [7, 5, 3, 1]
    assert in_flight(built("eager_1f1b", 4, 5)) == [5, 5, 3, 1]


@pytest.mark.parametrize(("pp", "m", "v"), [(2, 2, 2), (4, 4, 2), (4, 9, 3), (8, 16, 4)])
def test_looped_bfs_divides_the_bubble_of_gpipe(pp: int, m: int, v: int) -> None:
    times = UnitTimes(1.0, 1.0, 1.5)
    schedule = built("looped_bfs", pp, m, v)
    assert makespan(schedule, times) == pytest.approx(3.5 * m + (pp - 1) * 3.5 / v)
    assert in_flight(schedule) == [m * v] * pp


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(
    ("pp", "m", "v"),
    [(4, 4, 2), (6, 6, 2), (8, 8, 2), (4, 4, 4), (6, 6, 4), (8, 8, 4)],
)
def test_hanayo_is_the_proven_optimum(pp: int, m: int, v: int, ratio: float) -> None:
    """Bubble (P - 1) X/W under P activations: proven by a constraint solver (CP-SAT)."""
    searched = (1.0, ratio / 2, ratio / 2, 0.0, 1.0)
    schedule = build_schedule("hanayo", pp=pp, num_microbatches=m, v=v, times=searched)
    times = UnitTimes(1.0, ratio / 2, ratio / 2)
    bubble = (pp - 1) * ratio / (v // 2)
    assert makespan(schedule, times) == pytest.approx(m * (1 + ratio) + bubble)
    assert max(in_flight(schedule)) <= pp * v


def test_hanayo_with_more_micro_batches_is_a_little_above() -> None:
    assert makespan(built("hanayo", 4, 8, 2), UnitTimes()) == 3 * 8 + 3 * 2
    assert makespan(built("hanayo", 6, 12, 2), UnitTimes()) <= 3 * 12 + 5 * 2 + 0.5
    for pp, m, most in ((2, 4, 0.25), (4, 8, 0.25), (4, 16, 0.5), (8, 16, 0.75), (8, 32, 2.5)):
        schedule = built("hanayo", pp, m, 4)
        assert 0.0 <= makespan(schedule, UnitTimes()) - 3 * m - (pp - 1) <= most
        check_schedule(schedule)
        assert max(in_flight(schedule)) <= 4 * pp
