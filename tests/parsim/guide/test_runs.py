"""Which plans a guide runs as events: few, and the fastest of all among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cost.job import Job
from parsim.guide.compare import QUEUED, guide
from parsim.guide.families import with_batches
from parsim.plan import Plan
from parsim.plan.strategies import AsynchronousServer
from parsim.scenario import Scenario, load_scenario
from parsim.sim import Prediction, simulate
from tests.parsim.guide.guides import RESNET, SCENARIOS, row

ALEXNET = SCENARIOS / "alexnet-one-weird-trick-dgx-1v.yaml"
"""Many weights and few FLOPs: its server's memory has no rest."""


@pytest.mark.parametrize("file", [RESNET, ALEXNET])
def test_few_micro_batches_are_run_and_none_is_faster(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    runs: list[int] = []

    def counted(job: Job, plan: Plan, *, arrivals: bool = True, **other: object) -> Prediction:
        if arrivals and isinstance(plan.strategy, AsynchronousServer):
            runs.append(plan.microbatch_size)
        return simulate(job, plan, arrivals=arrivals, **other)  # type: ignore[arg-type]

    monkeypatch.setattr("parsim.guide.compare.simulate", counted)
    scenario = load_scenario(file)
    chosen = row(guide(scenario), "asynchronous server").prediction
    assert chosen is not None
    steps = [_step(scenario, plan) for plan in with_batches(chosen.plan, _batch(scenario))]
    assert len(runs) < len(steps)
    assert chosen.step_time <= QUEUED * min(steps)


def _batch(scenario: Scenario) -> int:
    assert scenario.global_batch_size is not None
    return scenario.global_batch_size


def _step(scenario: Scenario, plan: Plan) -> float:
    return simulate(scenario.job, plan).step_time


def test_without_a_run_memory_is_the_same_and_the_step_is_its_queues() -> None:
    scenario = load_scenario(ALEXNET)
    strategy = AsynchronousServer(on="hosts")
    plan = Plan(dp_replicate=8, microbatch_size=128, precision="fp32", strategy=strategy)
    told, run = simulate(scenario.job, plan, arrivals=False), simulate(scenario.job, plan)
    assert told.strategy is None
    assert run.strategy is not None
    assert (told.fit, told.fullest) == (run.fit, run.fullest)
    assert run.step_time / QUEUED <= told.step_time <= run.step_time * QUEUED


def test_a_step_that_needs_no_run_is_told_anyway() -> None:
    scenario = load_scenario(RESNET)
    plan = scenario.fixed_plan()
    assert simulate(scenario.job, plan, arrivals=False).step_time == _step(scenario, plan)
