"""Prediction intervals: what they rest on, and what widens them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot, log

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.sim import simulate
from parsim.sim.interval import (
    ANY,
    CALIBRATED,
    Errors,
    Group,
    bound_of,
    distance,
    step_interval,
)

MODEL = build_transformer(model_spec("megatron-22b"))
PLAN = Plan(tp=8, num_microbatches=4)
RANGES = {"devices": (8.0, 64.0), "hidden_size": (1024.0, 8192.0)}


def group(device: str, name: str, low: float, high: float) -> Group:
    return Group(device=device, software=name, n=9, low=low, high=high, ranges=RANGES)


GROUPS = (
    group(ANY, ANY, 0.2, 0.3),
    group("a100-sxm-80gb", ANY, 0.1, 0.15),
    group("a100-sxm-80gb", "megatron-2022", 0.02, 0.05),
    group(ANY, "nemo", 0.03, 0.04),
    Group(device=CALIBRATED, software=ANY, n=12, low=0.06, high=0.07, ranges={}),
)
ERRORS = Errors(
    groups={(one.device, one.software, one.bound): one for one in GROUPS},
    unknown_device=0.14,
    unknown_software=0.25,
    reach=0.1,
)


def job(system: str = "dgx-a100", stack: str = "megatron-2022") -> Job:
    cluster = Cluster(system=load_catalog().system(system), num_nodes=1)
    return Job(model=MODEL, cluster=cluster, software=software(stack))


def halves(where: Job, plan: Plan = PLAN) -> tuple[float, float]:
    found = step_interval(where, plan, 2.0, errors=ERRORS)
    return -log(found.low / 2.0), log(found.high / 2.0)


def test_the_device_under_its_software() -> None:
    assert halves(job()) == pytest.approx((0.02, 0.05))


def test_the_device_under_another_software() -> None:
    assert halves(job(stack="maxtext")) == pytest.approx((hypot(0.1, 0.25), hypot(0.15, 0.25)))


def test_another_device_under_the_software() -> None:
    assert halves(job("dgx-h100", "nemo")) == pytest.approx((hypot(0.03, 0.14), hypot(0.04, 0.14)))


def test_neither_was_measured() -> None:
    more = hypot(0.14, 0.25)
    assert halves(job("dgx-h100", "maxtext")) == pytest.approx((hypot(0.2, more), hypot(0.3, more)))


def test_a_calibrated_device_has_the_errors_of_calibrated_ones() -> None:
    known = job(stack="maxtext")
    device = replace(known.device, calibrated=True)
    system = replace(known.system, device=device)
    assert halves(replace(known, cluster=replace(known.cluster, system=system))) == pytest.approx(
        (0.06, 0.07)
    )


def test_runs_that_wait_for_the_host_are_a_group_of_their_own() -> None:
    slow = replace(GROUPS[2], bound="host", high=0.2)
    known = replace(ERRORS, groups={**ERRORS.groups, (slow.device, slow.software, "host"): slow})
    found = [step_interval(job(), PLAN, 1.0, bound=b, errors=known) for b in ("host", "device")]
    assert [log(one.high) for one in found] == pytest.approx([0.2, 0.05])
    assert "host-bound runs" in found[0].basis
    assert bound_of(job(), PLAN) == "device"
    small = replace(job(), model=build_transformer(replace(model_spec("gpt2"), seq_len=128)))
    assert bound_of(small, Plan(tp=4)) == "host"


def test_sizes_outside_of_the_measured_ones_widen() -> None:
    large = Plan(tp=8, dp_replicate=32, num_microbatches=4)  # 256 devices, 4 times the largest run
    assert halves(job(), large)[0] == pytest.approx(hypot(0.02, 0.1 * log(4.0)))
    assert "a factor 4.0 outside" in step_interval(job(), large, 2.0, errors=ERRORS).basis


def test_distance_by_hand() -> None:
    assert distance({"devices": 8.0, "hidden_size": 8192.0}, RANGES) == 0.0
    assert distance({"devices": 4.0, "hidden_size": 16384.0}, RANGES) == pytest.approx(
        log(2.0) * 2**0.5
    )


def test_a_prediction_lies_in_its_interval_and_says_what_it_rests_on() -> None:
    found = simulate(job(), PLAN)
    assert found.interval.low < found.step_time < found.interval.high
    assert found.interval.covers(found.step_time)
    assert not found.interval.covers(found.interval.high * 1.01)
    assert "runs of a100-sxm-80gb under megatron-2022" in found.interval.basis
    assert found.to_json()["step_time_interval_s"] == [found.interval.low, found.interval.high]


def test_an_interval_is_of_the_step_time() -> None:
    one, two = (step_interval(job(), PLAN, seconds, errors=ERRORS) for seconds in (1.0, 2.0))
    assert two.low == pytest.approx(2.0 * one.low)
    assert two.high == pytest.approx(2.0 * exp(0.05))
