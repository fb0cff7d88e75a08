"""Networks under parsim's executor: a search counts the bytes of many plans as of each alone."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.planner import search
from parsim.planner.bounds import plan_bounds
from parsim.planner.bounds.cases import price_layers
from parsim.planner.space import enumerate_plans
from parsim.scenario import load_scenario
from parsim.sim import simulate
from tests.commands import ROOT


@pytest.mark.parametrize("name", ["multi-task-small-cpu", "resnet18-small-cpu"])
def test_plans_beside_others_that_recompute_need_what_they_need_alone(name: str) -> None:
    scenario = load_scenario(ROOT / "scenarios" / f"{name}.yaml", {"search": {"pp": [1, 2]}})
    job, space = scenario.job, scenario.plan_space()
    result = search(job, space, top=40)
    assert {bool(entry.plan.recompute) for entry in result.plans} == {False, True}
    for entry in result.plans:
        alone = simulate(job, entry.plan)
        assert entry.peak_allocated == max(alone.peak_allocated)
        assert entry.step_time == pytest.approx(alone.step_time, rel=1e-12)
    table = enumerate_plans(job, space).table
    assert table is not None
    bounds = plan_bounds(job, table, price_layers(job, table), np.arange(len(table)))
    for row in range(0, len(table), 5):
        assert bounds.peak[row] <= max(simulate(job, table.plan(row)).peak_allocated)
