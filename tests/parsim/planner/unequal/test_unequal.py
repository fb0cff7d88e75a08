"""Stages with replicas of their own beside the plans whose stages are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.planner.search import search, search_front
from parsim.planner.unequal.candidates import Family
from parsim.planner.why.reasons import reasons
from parsim.scenario import scenario_text
from parsim.scenario.load import load_scenario
from parsim.scenario.record import Scenario
from parsim.sim.simulate import simulate

TEXT = """
model: {name: vgg16}
cluster: {system: aws-p3-2xlarge, nodes: 4}
software: generic
training: {global_batch_size: 384, precision: fp32, optimizer: sgd_momentum}
search: {microbatch_size: 32, schedule: 1f1b, recompute: none, zero_stage: 0, unequal_stages: true}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    path = tmp_path / "vgg.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return load_scenario(path)


def test_vgg_over_slow_links_replicates_its_convolutions(scenario: Scenario) -> None:
    """PipeDream's 3-1 on four machines of one V100: gradients of linear layers stay at home."""
    assert scenario.space is not None
    result = search(scenario.job, scenario.space, top=3)
    best = result.plans[0]
    assert [stage.replicas for stage in best.plan.stages or ()] == [3, 1]
    assert best.step_time == simulate(scenario.job, best.plan).step_time
    equal = search(scenario.job, replace(scenario.space, unequal_stages=False), top=1).plans[0]
    assert equal.plan.stages is None
    assert best.step_time < 0.8 * equal.step_time
    assert "7 plans with unequal stages" in result.optimality
    assert "the others are slower by a lower bound" in result.optimality
    assert sum(best.breakdown.values()) == pytest.approx(best.step_time)


def test_the_plan_is_read_back_and_why_says_where_its_time_goes(
    scenario: Scenario, tmp_path: Path
) -> None:
    assert scenario.space is not None
    told = reasons(scenario.job, scenario.space, {"dp": 4})
    assert told.best.plan.stages is not None
    assert told.wished is not None
    assert told.wished.plan.dp == 4
    assert sum(told.parts.values()) == pytest.approx(told.best.step_time)
    saved = tmp_path / "best.yaml"
    saved.write_text(scenario_text(scenario, told.best.plan), encoding="utf-8")
    again = load_scenario(saved)
    assert again.plan == told.best.plan


def test_candidates_share_out_all_devices_and_micro_batches(scenario: Scenario) -> None:
    assert scenario.space is not None
    like = search(scenario.job, scenario.space, top=1).plans[0].plan
    alike = replace(like, stages=None, pp=1, dp_replicate=4, num_microbatches=3)
    family = Family.of(scenario.job, alike, (1,))
    shared = {tuple(part.replicas for part in division) for division in family.divisions.some}
    assert shared >= {(3, 1), (1, 3), (2, 2), (2, 1, 1), (1, 1, 1, 1)}
    assert all(sum(replicas) == 4 for replicas in shared)
    assert family.divisions.whole
    for division in family.divisions.some:
        bound, _, plan = family.candidate(division)
        assert plan is not None
        step = simulate(scenario.job, plan).step_time
        assert family.bound(division) <= bound * (1.0 + 1e-9) <= step * (1.0 + 2e-9)


def test_nodes_of_several_kinds_are_refused() -> None:
    path = Path("scenarios/llama3-70b-h100-a100.yaml")
    mixed = load_scenario(path, {"search.unequal_stages": True})
    assert mixed.space is not None
    with pytest.raises(InputError, match="unequal_stages needs nodes of one kind"):
        search(mixed.job, mixed.space)


def test_a_front_refuses_them(scenario: Scenario) -> None:
    assert scenario.space is not None
    with pytest.raises(InputError, match="unequal_stages is for the fastest plans"):
        search_front(scenario.job, scenario.space)
