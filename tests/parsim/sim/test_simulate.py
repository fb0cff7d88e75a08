"""`simulate`: parts that sum to the whole, agreement of the tiers, monotone predictions, guards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.errors import PlanError
from parsim.plan import Plan, PlanTable, Recompute
from parsim.planner.bounds import plan_bounds
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.events import step_run
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.simulate import SimulatorError, guard
from tests.parsim.sim.conftest import PLANS, gpt_job

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def evaluated(job: Job, plan: Plan) -> Evaluation:
    return evaluate(job, plan, keep=True)


def test_breakdown_sums_to_the_step(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-12)
    assert min(prediction.breakdown.values()) >= -1e-12 * prediction.step_time


def test_memory_parts_sum_to_the_peak(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan)
    assert sum(prediction.memory.values()) == pytest.approx(
        max(prediction.peak_allocated), rel=1e-12
    )
    assert min(prediction.memory.values()) >= 0.0


@pytest.mark.parametrize(
    "microbatches", [62_500, *(pytest.param(m, marks=pytest.mark.slow) for m in (125_000, 300_001))]
)
def test_sums_of_many_actions_are_no_bubble(microbatches: int) -> None:
    """One stage never idles; what adding up its seconds loses is not taken for it."""
    scenario = load_scenario(SCENARIOS / "multi-task-small-cpu.yaml")
    plan = replace(scenario.fixed_plan().whole_models, num_microbatches=microbatches)
    evaluation = evaluate(scenario.job, plan, memory=False)
    guard(evaluation)
    assert evaluation.bubble_fraction == 0.0


def test_event_simulation_confirms_the_recurrence(job: Job, plan: Plan) -> None:
    confirmed = simulate(job, plan, tier="events")
    assert confirmed == simulate(job, plan)
    words = "discrete events and the recurrence agree on the step time "
    assert [note for note in confirmed.all_notes if note.startswith(words)] == [confirmed.checked]
    assert confirmed.checked.endswith(" (1e-09 of it is allowed)")
    assert not simulate(job, plan).checked


def test_bubble_fraction_and_overhead_are_the_same_idle_time(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan)
    assert 0.0 <= prediction.bubble_fraction < 1.0
    busy = prediction.pipeline_time * (1.0 - prediction.bubble_fraction)
    assert prediction.bubble_overhead * busy == pytest.approx(
        prediction.bubble_fraction * prediction.pipeline_time, abs=1e-15
    )
    assert 0.0 < prediction.device_span <= prediction.pipeline_time * (1 + 1e-12)


def test_utilisation_counts_recomputation_apart(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan)
    assert 0.0 < prediction.mfu <= prediction.hfu < 1.0
    assert (prediction.hfu > prediction.mfu) == (plan.recompute is not Recompute.NONE)


def test_tokens_per_second(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan)
    tokens = plan.global_batch_size * job.model.tokens
    assert prediction.tokens_per_second == pytest.approx(tokens / prediction.step_time)


def test_same_input_same_bytes(job: Job, plan: Plan) -> None:
    first, second = (json.dumps(simulate(job, plan).to_json()) for _ in range(2))
    assert first == second


def test_an_illegal_plan_is_refused(job: Job) -> None:
    with pytest.raises(PlanError, match=r"^tp=5 does not divide num_attention_heads=24; allowed"):
        simulate(job, Plan(tp=5))


def test_no_schedule_needs_less_than_the_least_memory(job: Job, plan: Plan) -> None:
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    result = evaluated(job, plan)
    least = plan_bounds(job, table, layers, np.zeros(1, dtype=np.int64)).peak[0]
    assert least <= result.peak.max()


def with_bandwidth(job: Job, *, memory: float = 1.0, links: float = 1.0, nics: float = 1.0) -> Job:
    system = job.system
    assert system.network is not None
    device = replace(system.device, memory_bandwidth=memory * system.device.memory_bandwidth)
    intra = replace(system.intra, bandwidth=links * system.intra.bandwidth)
    network = replace(system.network, nic_bandwidth=nics * system.network.nic_bandwidth)
    system = replace(system, device=device, intra=intra, network=network)
    return replace(job, cluster=replace(job.cluster, system=system))


factors = st.floats(min_value=1.0, max_value=50.0)
plans = st.sampled_from(sorted(PLANS))


@settings(max_examples=40)
@given(name=plans, memory=factors, links=factors, nics=factors)
def test_more_bandwidth_is_never_slower(
    name: str, memory: float, links: float, nics: float
) -> None:
    job, plan = gpt_job(), PLANS[name]
    better = with_bandwidth(job, memory=memory, links=links, nics=nics)
    before, after = simulate(job, plan), simulate(better, plan)
    assert after.step_time <= before.step_time * (1 + 1e-12)
    assert after.peak_allocated == before.peak_allocated


@settings(max_examples=40)
@given(name=plans, factor=factors)
def test_a_faster_device_is_never_slower(name: str, factor: float) -> None:
    job, plan = gpt_job(), PLANS[name]
    peaks = {kind: factor * peak for kind, peak in job.device.peak_flops.items()}
    system = replace(job.system, device=replace(job.device, peak_flops=peaks))
    better = replace(job, cluster=replace(job.cluster, system=system))
    assert simulate(better, plan).step_time <= simulate(job, plan).step_time * (1 + 1e-12)


@settings(max_examples=40)
@given(name=plans, more=st.integers(min_value=1, max_value=4))
def test_more_micro_batches_take_longer_but_idle_less(name: str, more: int) -> None:
    job, plan = gpt_job(), PLANS[name]
    larger = replace(plan, num_microbatches=plan.num_microbatches * (1 + more))
    before, after = simulate(job, plan), simulate(job, larger)
    assert after.step_time > before.step_time
    assert after.breakdown["forward"] == pytest.approx((1 + more) * before.breakdown["forward"])


def test_guard_passes_what_is_possible(job: Job, plan: Plan) -> None:
    guard(evaluated(job, plan))


def test_guard_stops_a_negative_bubble(job: Job) -> None:
    result = evaluated(job, PLANS["1f1b"])
    (whole,) = result.runs
    short = replace(result, runs=(replace(whole, clock=0.5 * whole.clock),))
    with pytest.raises(SimulatorError, match="negative bubble"):
        guard(short)


def test_guard_stops_a_peak_below_the_static_bytes(job: Job) -> None:
    result = evaluated(job, PLANS["1f1b"])
    ((count, memory),) = result.memory.items()
    memory = replace(memory, activations=np.full_like(memory.activations, -1e18))
    with pytest.raises(SimulatorError, match="peak memory is below"):
        guard(replace(result, memory={count: memory}))


def test_tiers_that_disagree_are_reported(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    real = step_run.events_step_time
    monkeypatch.setattr(step_run, "events_step_time", lambda step: 1.001 * real(step))
    with pytest.raises(SimulatorError, match="tiers disagree"):
        simulate(job, PLANS["1f1b"], tier="events")


def test_a_utilisation_above_one_says_how_it_can_be() -> None:
    """VGG-16 in fp32 on V100: cuDNN's Winograd kernels do fewer operations than are counted."""
    scenario = load_scenario(
        SCENARIOS / "resnet50-dgx-1v.yaml",
        {"model": "{name: vgg16}", "training.precision": "fp32", "plan.microbatch_size": "64"},
    )
    prediction = simulate(scenario.job, scenario.fixed_plan())
    assert prediction.mfu > 1.0
    assert any(note.startswith("MFU above 100 %: ") for note in prediction.all_notes)
    assert "MFU above 100 %" in str(prediction.to_json()["notes"])
    below = replace(prediction, mfu=0.5)
    assert not any("MFU above" in note for note in below.all_notes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert-large-parameter-server", {}),
        ("gpt2-small-cpu", {"plan.schedule": "pipedream", "model.tied_embeddings": False}),
    ],
)
def test_a_timeline_states_the_predicted_step_time(name: str, changes: dict[str, object]) -> None:
    """Also where it draws fewer or other seconds: a fill, no allowance for late workers."""
    scenario = load_scenario(SCENARIOS / f"{name}.yaml", changes)
    prediction = simulate(scenario.job, scenario.fixed_plan(), timeline=True)
    assert prediction.timeline is not None
    assert prediction.timeline.meta["step_time_s"] == prediction.step_time
