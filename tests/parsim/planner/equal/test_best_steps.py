"""The best steps known so far: how many plans they are of, and what another must not exceed."""

from __future__ import annotations

import numpy as np

from parsim.plan import Plan, PlanTable
from parsim.planner.equal.best_steps import BestSteps

NONE = np.zeros(0, dtype=int)


def twins() -> PlanTable:
    """Two plans, each with an even cut and with another one."""
    cuts = [None, (3, 5)]
    tables = [
        PlanTable.of([Plan(pp=2, tp=tp, num_microbatches=4, stage_layers=cut) for tp in (1, 2)])
        for cut in cuts
    ]
    return PlanTable.joined(tables)


def test_plans_that_differ_by_their_cut_count_once() -> None:
    best, table = BestSteps(2), twins()
    best.add(table, np.array([4.0, np.inf, 3.0, np.inf]), np.array([0, 2]), NONE)
    assert best.fastest == 3.0
    assert best.worst == np.inf  # of another plan nothing is known
    best.add(table, np.array([4.0, 5.0, 3.0, 6.0]), np.array([1, 3]), NONE)
    assert best.worst == 5.0


def test_a_better_twin_takes_the_place_of_one_that_was_left_out() -> None:
    best, table = BestSteps(1), twins()
    steps = np.array([4.0, 5.0, 6.0, 2.0])
    best.add(table, steps, np.array([0, 1, 2]), NONE)
    assert best.worst == 4.0
    best.add(table, steps, np.array([3]), NONE)
    assert best.worst == 2.0


def test_a_tight_plan_is_told_only_where_it_is_faster_than_all_that_fit() -> None:
    best, table = BestSteps(2), twins()
    steps = np.array([4.0, 5.0, 6.0, 2.0])
    best.add(table, steps, NONE, np.array([0, 1]))
    assert best.worst_tight == 5.0
    best.add(table, steps, np.array([3]), NONE)
    assert best.worst_tight == 2.0
