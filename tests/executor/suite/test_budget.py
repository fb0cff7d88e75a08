"""The suite's budget: all steps while all cases fit, then fewer, then none; never silently."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.suite.budget import LEAST_STEPS, Budget, Cost


@dataclass
class Clock:
    """A clock that moves when told."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """A budget on such a clock."""

    total: float
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.budget = Budget(total=self.total, kept=10.0, clock=self.clock)


TEN_SECONDS = Cost(setup=1.0, step=0.45)  # 10 steps, 3 before, 7 after: 1 + 20 x 0.45


def test_what_a_case_costs() -> None:
    assert TEN_SECONDS.seconds(10) == pytest.approx(10.0)
    assert TEN_SECONDS.seconds(10, warmup=0) == pytest.approx(8.65)


def test_all_steps_while_everything_fits() -> None:
    budget = Bench(total=45.0).budget
    assert budget.steps(TEN_SECONDS, [TEN_SECONDS] * 2, 10) == 10


def test_fewer_steps_where_not_all_cases_fit() -> None:
    # 27 s are left for three cases of 10 s: 9 s each, 1 + (3 + 7 + 7) x 0.45 = 8.65
    assert Bench(total=37.0).budget.steps(TEN_SECONDS, [TEN_SECONDS] * 2, 10) == 7


def test_the_least_steps_even_beyond_the_share() -> None:
    # 5 steps take 7.75 s, the share is 5 s, but 15 s are left
    assert Bench(total=25.0).budget.steps(TEN_SECONDS, [TEN_SECONDS] * 2, 10) == LEAST_STEPS


def test_a_case_without_time_is_left_out_and_says_so() -> None:
    bench = Bench(total=40.0)
    bench.clock.now += 25.0
    assert bench.budget.steps(TEN_SECONDS, [], 10) == 0
    assert bench.budget.why_not(TEN_SECONDS, 10) == (
        "no time: about 8 s for 5 steps, 5 s of 40 s are left; use --seconds"
    )


def test_wanting_fewer_than_the_least() -> None:
    budget = Bench(total=12.0).budget
    assert budget.steps(Cost(setup=0.5, step=0.1), [], 2) == 2


def test_the_pace_of_earlier_cases_corrects_the_later_ones() -> None:
    bench = Bench(total=50.0)
    assert bench.budget.steps(TEN_SECONDS, [TEN_SECONDS] * 2, 10) == 10
    bench.budget.took(20.0, TEN_SECONDS, 10)
    assert bench.budget.pace == pytest.approx(2.0)
    assert bench.budget.steps(TEN_SECONDS, [TEN_SECONDS] * 2, 10) < 10


def test_a_case_may_hang_only_so_long() -> None:
    assert Bench(total=1000.0).budget.limit(TEN_SECONDS, 10) == pytest.approx(100.0)
    assert Bench(total=50.0).budget.limit(TEN_SECONDS, 10) == pytest.approx(40.0)


@given(
    total=st.floats(11.0, 500.0),
    step=st.floats(0.0, 5.0),
    later=st.lists(st.floats(0.0, 5.0), max_size=10),
)
def test_what_is_granted_fits_the_seconds_left(
    total: float, step: float, later: list[float]
) -> None:
    budget = Bench(total=total).budget
    cost = Cost.of(1e6, step)
    steps = budget.steps(cost, [Cost.of(1e6, entry) for entry in later], 20)
    assert steps == 0 or LEAST_STEPS <= steps <= 20
    assert not steps or cost.seconds(steps) <= budget.left + 1e-9
    assert steps or cost.seconds(LEAST_STEPS) > budget.left
