"""Software that nobody names: the interval is that of all stacks measured on the device."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import GENERIC, software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.interval import Interval
from parsim.sim.confidence.known_errors import errors_of
from parsim.sim.plan_interval import (
    StackTime,
    mixture_interval,
    quantile,
    software_unsaid,
    stacks_on,
)

PLAN = Plan(tp=8, sequence_parallel=True, num_microbatches=4)


def job(stack: str, system: str = "dgx-h100") -> Job:
    cluster = Cluster(system=load_catalog().systems[system], num_nodes=1)
    model = build_transformer(model_spec("llama3-8b"))
    return Job(model=model, cluster=cluster, software=software(stack))


def stack(name: str, seconds: float, half: float) -> StackTime:
    return StackTime(
        software=name,
        step_time=seconds,
        interval=Interval(low=seconds * exp(-half), high=seconds * exp(half), basis=""),
        tokens_per_second=1000.0 / seconds,
    )


def test_the_mixture_of_one_stack_is_that_stack() -> None:
    first = stack("a", 2.0, 0.1)
    assert quantile([first], 0.5) == pytest.approx(2.0)
    assert quantile([first, first], 0.1) == pytest.approx(first.interval.low, rel=1e-5)
    assert quantile([first, first], 0.9) == pytest.approx(first.interval.high, rel=1e-5)


def test_stacks_far_apart_have_four_fifths_of_the_mixture_between_the_bounds() -> None:
    stacks, unsaid = [stack("a", 1.0, 0.01), stack("b", 2.0, 0.01)], stack("generic", 1.5, 0.01)
    interval = mixture_interval(stacks, unsaid)
    assert 0.99 < interval.low < 1.0
    assert 2.0 < interval.high < 2.01
    below = [sum(each.below(t) for each in (*stacks, unsaid)) / 3 for t in interval.to_json()]
    assert below == pytest.approx([0.1, 0.9])
    assert "(a 1k, b 500 tokens/s)" in interval.basis


@pytest.mark.parametrize(("model", "unit"), [("resnet50", "samples/s"), ("gpt2", "tokens/s")])
def test_the_stacks_throughput_is_in_the_models_unit(model: str, unit: str, tmp_path: Path) -> None:
    """A model of images takes samples, whose stacks' words once said tokens."""
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"model: {{name: {model}}}\n"
        "cluster: {system: dgx-a100, nodes: 1, devices_per_node: 4}\n"
        "training: {global_batch_size: 128, precision: bf16}\n"
        "plan: {dp: 4, microbatch_size: 32}\n"
    )
    scenario = load_scenario(path)
    basis = simulate(scenario.job, scenario.fixed_plan()).interval.basis
    assert scenario.job.model.speed_unit == unit
    assert f" {unit})" in basis
    assert basis.count("/s") == 1


def test_the_assumed_step_time_lies_inside() -> None:
    stacks = [stack("a", 1.0, 0.01)] * 30
    assert mixture_interval(stacks, stack("generic", 3.0, 0.5)).high == 3.0


def test_a_device_under_software_that_is_not_said() -> None:
    known = stacks_on(job(GENERIC), errors_of())
    assert {"maxtext", "megatron-bridge", "nemo"} <= set(known)
    prediction = simulate(job(GENERIC), PLAN)
    assert prediction.interval.low < prediction.step_time < prediction.interval.high
    under = [simulate(job(name), PLAN).step_time for name in ("nemo", "megatron-bridge")]
    assert prediction.interval.low < min(under) < max(under) < prediction.interval.high
    assert "nemo " in prediction.interval.basis
    assert "tokens/s" in prediction.interval.basis


def test_a_mixture_of_experts_under_software_that_is_not_said() -> None:
    experts = replace(
        job(GENERIC, "gb200-nvl72"), model=build_transformer(model_spec("qwen3-30b-a3b"))
    )
    assert {"megatron-bridge", "nemo"} <= set(stacks_on(experts, errors_of()))
    plan = Plan(dp_shard=72, ep=8, num_microbatches=4, zero_stage=1)
    prediction = simulate(experts, plan)
    assert "megatron-bridge " in prediction.interval.basis


def test_no_mixture_without_stacks_to_mix() -> None:
    assert not software_unsaid(job("nemo"))
    unmeasured, plan = job(GENERIC, "dgx-1v"), replace(PLAN, precision="fp16")
    assert not software_unsaid(unmeasured)
    assert "generic assumptions" in simulate(unmeasured, plan).interval.basis
