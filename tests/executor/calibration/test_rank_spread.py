"""By how much ranks differ that do the same work at the same time."""

from __future__ import annotations

import math
from random import Random

import pytest

pytest.importorskip("torch")

from executor.calibration.timing.rank_spread import LEAST_TASKS, spread_of


def test_the_spread_is_between_ranks_whatever_tasks_last() -> None:
    draws = Random(1)
    tasks = [
        [math.log(seconds) + draws.gauss(0.0, 0.05) for _ in range(4)]
        for seconds in (0.001, 0.02, 0.3) * 300
    ]
    assert spread_of(tasks) == pytest.approx(0.05, rel=0.05)


def test_a_rank_that_is_always_slower_counts() -> None:
    tasks = [[0.0, math.log(1.1)]] * LEAST_TASKS
    assert spread_of(tasks) == pytest.approx(math.log(1.1) / math.sqrt(2.0))


def test_a_rank_that_was_held_up_once_does_not_count() -> None:
    tasks = [[0.0, 0.05], [0.05, 0.0]] * 5
    assert spread_of([*tasks, [0.0, 1.5]]) == pytest.approx(spread_of(tasks))


def test_few_tasks_say_nothing() -> None:
    assert spread_of([[0.0, 1.0]] * (LEAST_TASKS - 1)) == 0.0
