"""The best plans run in turn, by a stand-in for the ranks; twins keep what all plans share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.cost.legal import illegal
from parsim.errors import InputError, PlanError
from parsim.launch.measured_plans import ROUNDS, MeasureRequest, measure_plans
from parsim.launch.options import RunOptions
from parsim.launch.twin import MOST_RANKS, twin_of
from parsim.plan import Plan, Recompute
from parsim.plan.strategies import SingleProcess
from parsim.report.display import text as display
from parsim.scenario import Scenario, load_scenario, scenario_text
from tests.commands import GPT3, LLAMA, SMALL

PLANS = (
    Plan(tp=8, pp=4, dp_replicate=32, microbatch_size=3, num_microbatches=16, schedule="1f1b"),
    Plan(tp=8, pp=8, dp_shard=16, zero_stage=1, num_microbatches=96, sequence_parallel=True),
)


class Ranks:
    """A stand-in for `run_plan`: says how long each scenario takes, and notes the order."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self.order: list[str] = []

    def __call__(self, scenario: Path, world: int, options: RunOptions) -> dict[str, Any]:
        plan = load_scenario(scenario).fixed_plan()
        assert plan.processes == world
        assert options.out == scenario.with_suffix("")
        self.order.append(scenario.stem)
        return {"measured": {"step_time_s": {"median": self.seconds[scenario.stem]}}}


@pytest.fixture(scope="module")
def small() -> Scenario:
    return load_scenario(SMALL)


def plans_of(scenario: Scenario) -> list[Plan]:
    """Two plans of GPT-2 on two ranks: a pipeline and replicas."""
    pipeline = scenario.fixed_plan()
    whole = replace(pipeline, pp=1, stage_layers=None, dp_replicate=2, num_microbatches=2)
    return [pipeline, whole]


def test_plans_run_in_turn(small: Scenario, tmp_path: Path) -> None:
    ranks = Ranks({"plan-1": 3.0, "plan-2": 2.0})
    told: list[tuple[int, int]] = []
    request = MeasureRequest(best=2, steps=4, out=tmp_path / "runs")
    result = measure_plans(
        small, plans_of(small), request, run=ranks, progress=lambda *at: told.append(at)
    )
    assert ranks.order == ["plan-1", "plan-2", "plan-2", "plan-1"]
    assert told[-1] == (ROUNDS * 2, ROUNDS * 2)
    assert (result.twin, result.skipped) == ("", ())
    first = min(result.plans, key=lambda entry: entry.predicted)
    assert result.plans[0] == first
    assert result.regret == pytest.approx(first.measured / 2.0 - 1.0)
    assert result.spearman == pytest.approx(1.0 if first.measured == 2.0 else -1.0)
    document = result.to_json()
    assert [row["runs_step_time_s"] for row in document["plans"]] == [
        list(entry.runs) for entry in result.plans
    ]


def test_copies_of_a_single_process_get_one(small: Scenario, tmp_path: Path) -> None:
    pipeline = small.fixed_plan()
    plan = replace(
        pipeline,
        pp=1,
        stage_layers=None,
        dp_replicate=2,
        num_microbatches=2,
        strategy=SingleProcess(),
    )
    assert (plan.world_size, plan.processes) == (2, 1)
    measure_plans(small, [plan], MeasureRequest(out=tmp_path), run=Ranks({"plan-1": 1.0}))


def test_what_the_executor_refuses_is_told(small: Scenario, tmp_path: Path) -> None:
    refused = replace(small.fixed_plan(), num_microbatches=7)
    request = MeasureRequest(out=tmp_path)
    with pytest.raises(InputError, match=r"runs none of the best plans; .*global_batch_size"):
        measure_plans(small, [refused], request, run=Ranks({}))
    ranks = Ranks({"plan-1": 1.0})
    result = measure_plans(small, [small.fixed_plan(), refused], request, run=ranks)
    assert [reason for _, reason in result.skipped] == [illegal(small.job, refused)]
    assert (len(result.plans), result.spearman, result.regret) == (1, None, 0.0)


def test_a_twin_keeps_the_shape() -> None:
    twin = twin_of(load_scenario(GPT3), PLANS)
    first, second = twin.plans
    assert first.world_size == second.world_size <= MOST_RANKS
    assert (first.pp, second.pp) == (4, 8)
    assert first.global_batch_size == second.global_batch_size
    assert first.microbatch_size == 3
    assert twin.overrides["model.hidden_size"] == 256
    assert "on 8 ranks over gloo instead of 1024" in twin.words


def test_twins_run_on_cores(tmp_path: Path) -> None:
    scenario = load_scenario(LLAMA)
    plan = scenario.fixed_plan()
    other = replace(plan, recompute=Recompute.FULL)
    ranks = Ranks({"plan-1": 1.0, "plan-2": 1.5})
    request = MeasureRequest(best=2, out=tmp_path)
    result = measure_plans(scenario, [plan, other], request, run=ranks)
    assert "layers" in result.twin
    assert [entry.plan.zero_stage for entry in result.plans] == [plan.zero_stage] * 2
    text = display(result)
    assert "a twin of the job ran" in text
    assert "parsim calibrate --scenario" in text


def test_plans_without_a_common_twin() -> None:
    apart = (Plan(pp=16, dp_replicate=3), Plan(pp=48))
    with pytest.raises(PlanError, match=r"no common twin of 8 ranks: .* need 48"):
        twin_of(load_scenario(GPT3), apart)


def test_a_saved_scenario_takes_the_overrides_of_its_twin(tmp_path: Path) -> None:
    scenario = load_scenario(GPT3)
    file = tmp_path / "saved.yaml"
    file.write_text(scenario_text(scenario, scenario.fixed_plan()), encoding="utf-8")
    twin = twin_of(scenario, [scenario.fixed_plan()])
    job = load_scenario(file, twin.overrides).job
    assert (job.software.id, job.cluster.num_devices) == ("executor-cpu", twin.plans[0].world_size)
    assert illegal(job, twin.plans[0]) is None
