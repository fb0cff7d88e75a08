"""What physics says of any two predictions, whatever their numbers: a seeded sample of plans.

A faster part never makes a step slower, more micro-batches never make ranks idle more.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute
from parsim.plan.names import SCHEDULE_NAMES
from parsim.sim import simulate
from tests.parsim.sim.conftest import PLANS, gpt_job
from tests.parsim.sim.random_jobs import faster, on, random_jobs

SAMPLE = random_jobs(1, 14)
SMALL = 1e-3
TWO_CHUNKS = ("zb_v", "v_min", "looped_bfs", "hanayo", "dualpipe_v")
"""By how much rounding up to whole chunks and tiles may turn a gain into a loss."""
pairs = pytest.mark.parametrize(
    ("job", "plan"), SAMPLE, ids=[f"{job.model.name} {plan.label()}" for job, plan in SAMPLE]
)


def losses(job: Job, plan: Plan, times: float) -> dict[str, float]:
    """By how much of a step each faster part makes it slower; below zero: faster."""
    before = simulate(job, plan).step_time
    return {
        name: simulate(on(job, system), plan).step_time / before - 1.0
        for name, system in faster(job.system, times)
    }


@pairs
def test_no_faster_part_is_slower(job: Job, plan: Plan) -> None:
    apart = on(job, replace(job.system, interference=0.0))
    assert {n: loss for n, loss in losses(apart, plan, 4.0).items() if loss > SMALL} == {}


@pytest.mark.parametrize("schedule", ["zb_h1", "zb_v", "v_min"])
def test_a_backward_in_two_that_waits_for_its_host_gains_from_arithmetic(schedule: str) -> None:
    """Cut by seconds on the device, I would take more of the same whole where W shrinks."""
    job = Job(
        model=build_transformer(model_spec("gpt-1.7b")),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=4),
        software=software("megatron-2021"),
    )
    plan = Plan(
        tp=8, pp=4, schedule=schedule, v=1 if schedule == "zb_h1" else 2, num_microbatches=8
    )
    assert simulate(job, plan).step_time == pytest.approx(
        simulate(on(job, dict(faster(job.system, 8.0))["arithmetic"]), plan).step_time, rel=0.1
    )
    for times in (1.2, 2.0, 4.0):
        assert losses(job, plan, times)["arithmetic"] <= 0.0


@settings(max_examples=10)
@given(name=st.sampled_from(sorted(PLANS)), times=st.floats(min_value=1.0, max_value=50.0))
def test_no_faster_part_is_slower_by_any_factor(name: str, times: float) -> None:
    apart = on(gpt_job(), replace(gpt_job().system, interference=0.0))
    assert max(losses(apart, PLANS[name], times).values()) <= SMALL


def test_a_faster_link_is_not_slower_beside_compute() -> None:
    job = Job(
        model=build_transformer(model_spec("qwen3-30b-a3b")),
        cluster=Cluster(system=load_catalog().system("aws-p5"), num_nodes=4),
        software=software("megatron-lm"),
    )
    plan = Plan(
        tp=4,
        dp_replicate=8,
        ep=16,
        num_microbatches=2,
        sequence_parallel=True,
        recompute=Recompute.FULL,
        precision="fp16",
        bucket_bytes=1e7,
        overlap_grad_reduce=True,
        overlap_param_gather=True,
    )
    assert losses(job, plan, 4.0)["links"] <= SMALL


@pytest.mark.parametrize("name", [name for name in SCHEDULE_NAMES if name not in ("v_half",)])
@pytest.mark.parametrize("count", [4, 8])
def test_more_micro_batches_never_idle_more(name: str, count: int) -> None:
    """v_half alone may, by half a percent: its bound on memory makes every round wait."""
    chunks = 3 if name == "interleaved_1f1b" else 2 if name in TWO_CHUNKS else 1
    plan = Plan(pp=4, tp=4, schedule=name, v=chunks, num_microbatches=count)
    shares = [
        simulate(gpt_job(), replace(plan, num_microbatches=times * count)).bubble_fraction
        for times in (1, 2, 3)
    ]
    assert all(after <= before + 1e-12 for before, after in pairwise(shares))


@pairs
def test_a_larger_batch_takes_longer_and_no_less_memory(job: Job, plan: Plan) -> None:
    more = replace(plan, num_microbatches=2 * plan.num_microbatches)
    before, after = simulate(job, plan), simulate(job, more)
    assert after.step_time > before.step_time
    assert max(after.peak_allocated) >= max(before.peak_allocated) * (1.0 - 1e-12)
    assert after.tokens_per_second >= before.tokens_per_second * (1.0 - SMALL)


@pairs
def test_parts_of_a_step_and_of_memory_are_never_negative(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-12)
    assert min(prediction.memory.values()) >= 0.0
    assert min(prediction.breakdown.values()) >= -1e-12 * prediction.step_time
