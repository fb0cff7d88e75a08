"""Intervals of simulated jobs: what they rest on, and what widens them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot
from statistics import median

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import NETWORKS, Job
from parsim.cost.layer_doubt import LayerDoubt, Missing
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.basis import Z80
from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import (
    ANY,
    errors_of,
)
from parsim.sim.plan_interval import stacks_on
from tests.commands import ROOT
from tests.parsim.sim.confidence.known_groups import BASE, ERRORS, half, halves

MODEL = build_transformer(model_spec("megatron-22b"))
PLAN = Plan(tp=8, num_microbatches=4)


def job(system: str = "dgx-a100", stack: str = "megatron-2022") -> Job:
    cluster = Cluster(system=load_catalog().system(system), num_nodes=1)
    return Job(model=MODEL, cluster=cluster, software=software(stack))


def test_a_prediction_lies_in_its_interval_and_says_what_it_rests_on() -> None:
    prediction = simulate(job(), PLAN)
    assert prediction.interval.low < prediction.step_time < prediction.interval.high
    assert prediction.interval.covers(prediction.step_time)
    assert not prediction.interval.covers(prediction.interval.high * 1.01)
    assert "runs of a100-sxm-80gb under megatron-2022" in prediction.interval.basis
    assert prediction.to_json()["step_time_interval_s"] == [
        prediction.interval.low,
        prediction.interval.high,
    ]


@pytest.mark.parametrize("system", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_a_generic_stack_is_wider_than_the_described_ones_usually_are(system: str) -> None:
    """A mixture of them is no wider than the one that is known worst."""

    def relative(stack: str) -> float:
        interval = simulate(job(system, stack), PLAN).interval
        return interval.high / interval.low

    described = ["megatron-2022", "nemo", "mpt-fsdp-2023", "torchtitan", "megatron-bridge"]
    assert relative("generic") > median(relative(stack) for stack in described)


def test_a_stand_in_for_an_unknown_system_is_wider() -> None:
    known = job()
    system = replace(known.system, stands_for="somebody's pod")
    unknown = replace(known, cluster=replace(known.cluster, system=system))
    result = [simulate(entry, PLAN) for entry in (known, unknown)]
    assert result[0].step_time == result[1].step_time
    assert result[1].interval.high > result[0].interval.high
    assert "no run on system somebody's pod" in result[1].interval.basis


def test_an_interval_is_of_the_step_time() -> None:
    first, two = (step_interval(BASE, seconds, ERRORS) for seconds in (1.0, 2.0))
    assert two.low == pytest.approx(2.0 * first.low)
    assert two.high == pytest.approx(2.0 * exp(0.05))


def test_recorded_steps_widen_at_once_and_narrow_slowly() -> None:
    changed = replace(BASE, calibrated=True)
    assert half(replace(changed, steps=(0.2,))) == pytest.approx(0.2)
    # (1 x 0.01 + 5 x 0.06) / 6: one good run among twelve shipped ones
    assert half(replace(changed, steps=(0.01,))) == pytest.approx(0.31 / 6.0)
    many = (0.01,) * 45
    assert half(replace(changed, steps=many)) == pytest.approx((45 * 0.01 + 5 * 0.06) / 50.0)
    # the second largest of nine: 0.8 x (9 + 1) = the eighth
    nine = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, -0.1, 0.3)
    assert half(replace(changed, steps=nine)) == pytest.approx(0.1)
    assert half(replace(BASE, steps=(0.5,))) == pytest.approx(0.05)


def test_what_a_calibration_left_open_adds() -> None:
    missing = (Missing(kind="block", share=0.8, deviation=0.25, reason="out of memory"),)
    doubt = LayerDoubt(timed=0.03, clock=0.04, missing=missing)
    changed = replace(BASE, calibrated=True, doubt=doubt)
    assert half(changed) == pytest.approx(hypot(0.06, Z80 * 0.03, Z80 * 0.04, Z80 * 0.2))
    basis = step_interval(changed, 2.0, ERRORS).basis
    assert "block (80 % of the step, out of memory)" in basis
    assert "drift while calibrating" in basis


def test_a_network_is_judged_by_runs_of_networks() -> None:
    scenario = load_scenario(ROOT / "scenarios/resnet50-dgx-1v.yaml")
    prediction = simulate(scenario.job, scenario.fixed_plan())
    assert "under pytorch-ddp, networks" in prediction.interval.basis
    assert prediction.standing.software == "pytorch-ddp, networks"
    assert {name for _, name, _ in errors_of(prediction.standing.software).groups} & {
        name for _, name, _ in errors_of().groups
    } == {ANY}
    standing, high = prediction.standing, prediction.interval.high / prediction.step_time
    assert high == pytest.approx(step_interval(standing, 1.0, errors_of(NETWORKS)).high)
    assert high < 1.25 < step_interval(standing, 1.0, errors_of()).high


def test_frameworks_that_nobody_described_are_in_no_mixture() -> None:
    scenario = load_scenario(ROOT / "scenarios/resnet50-dgx-1v.yaml", {"software": "generic"})
    stacks = stacks_on(scenario.job, errors_of(scenario.job.practice))
    described = ["mxnet", "mxnet-2016", "pytorch-2017", "pytorch-ddp", "tensorflow"]
    assert stacks == [*described, "tensorflow-xla"]
    undescribed = {"tensorflow-2017", "tensorflow-2016"}
    assert undescribed <= {name.removesuffix(NETWORKS) for _, name, _ in errors_of(NETWORKS).groups}


def test_what_one_publisher_reached_is_no_bar_for_a_device_without_runs() -> None:
    """Not that of its own machine, 0.04: no less than all runs, by the factor of a device."""
    new = replace(BASE, device="v100", software="mpt")
    single = replace(ERRORS, groups={
        **ERRORS.groups,
        (ANY, "mpt", ANY): replace(ERRORS.groups["a100", "mpt", ANY], device=ANY),
    })  # fmt: skip
    assert halves(new, single)[0] == pytest.approx(0.3 * 2.0)
    assert halves(replace(new, publisher="mosaicml"), single)[0] == pytest.approx(0.04 * 2.0)
