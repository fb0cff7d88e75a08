"""Where a step goes: parts that add up, none below zero, and a backward that is always the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from statistics import fmean

import pytest

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.comparison.timelines import compare_timelines
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute
from parsim.sim import simulate

REPEATED = [
    *((mode, ()) for mode in Recompute),
    (Recompute.NONE, ("core_attn", "mlp")),
    (Recompute.NONE, ("moe", "layernorm")),
]
"""What backward runs again: a mode, and modules by name."""

SPLIT = Plan(tp=8, dp_replicate=2, num_microbatches=4, sequence_parallel=True)
PLANS = {
    "one rank a replica": Plan(dp_replicate=16, num_microbatches=2),
    "split": SPLIT,
    "split, borders whole": replace(SPLIT, sequence_parallel=False),
    "context parallel, shards": Plan(
        cp=4, tp=2, sequence_parallel=True, dp_shard=2, zero_stage=3, num_microbatches=2
    ),
    "gradients in shards": Plan(
        tp=2, pp=2, sequence_parallel=True, dp_shard=4, zero_stage=2, num_microbatches=4
    ),
    "backward in two": Plan(
        pp=4, tp=4, sequence_parallel=True, num_microbatches=8, schedule="zb_h1"
    ),
    "experts": Plan(
        pp=4, tp=2, dp_shard=2, ep=2, zero_stage=1, sequence_parallel=True, num_microbatches=8
    ),
}


def slow(system: System) -> System:
    """The system with links that take a hundred times as long."""
    intra = replace(system.intra, bandwidth=system.intra.bandwidth / 100.0)
    assert system.network is not None
    network = replace(system.network, nic_bandwidth=system.network.nic_bandwidth / 100.0)
    return replace(system, intra=intra, network=network)


@cache
def job_of(model: str, stack: str, system: str, slow_links: bool = False) -> Job:
    node = load_catalog().system(system)
    return Job(
        model=build_transformer(model_spec(model)),
        cluster=Cluster(system=slow(node) if slow_links else node, num_nodes=2),
        software=software(stack),
    )


JOBS = {
    "unfused kernels": ("gpt2-medium", "megatron-2021", "dgx-a100"),  # the host sets the pace
    "every second product": ("llama3-8b", "torchtitan", "dgx-h100"),
    "slow links": ("llama3-8b", "megatron-te-2025", "dgx-h100", True),
    "slow links, host": ("gpt2-medium", "generic", "dgx-h100", True),
    "experts": ("mixtral-8x7b", "megatron-te-2025", "dgx-h100"),
}


def recomputing(job: Job, plan: Plan) -> Iterator[Plan]:
    """The plan with everything that its backward may run again."""
    for mode, modules in REPEATED:
        again = replace(plan, recompute=mode, recompute_modules=modules)
        if illegal(job, again) is None:
            yield again


@pytest.mark.parametrize("name", JOBS)
def test_parts_add_up_and_backward_is_the_same_whatever_is_recomputed(name: str) -> None:
    job = job_of(*JOBS[name])
    legal = 0
    for plan in PLANS.values():
        backward = set()
        for again in recomputing(job, plan):
            step = simulate(job, again)
            parts = step.breakdown
            assert sum(parts.values()) == pytest.approx(step.step_time, rel=1e-12), again
            assert min(parts.values()) >= -1e-12 * step.step_time, again
            assert (parts["recompute"] > 0.0) == bool(again.recompute or again.recompute_modules)
            backward.add(parts["backward"])
            legal += 1
        if backward:
            assert max(backward) == pytest.approx(min(backward), rel=1e-12), plan
    assert legal >= 15


def test_repeated_collectives_are_exposed_and_no_recomputation() -> None:
    """Llama 3 8B with tp 8: all of forward's kernels run again, and all its collectives show."""
    job = job_of("llama3-8b", "megatron-te-2025", "dgx-h100")
    none, full = (
        simulate(job, replace(SPLIT, recompute=mode)).breakdown
        for mode in (Recompute.NONE, Recompute.FULL)
    )
    assert full["backward"] == pytest.approx(none["backward"], rel=1e-12)
    assert none["recompute"] == 0.0
    assert full["exposed_communication"] > 1.3 * none["exposed_communication"]
    # embedding, head and loss are not run again, so it is a little less than forward
    assert 0.8 * full["forward"] < full["recompute"] < full["forward"]


@pytest.mark.parametrize("plan", ["split", "backward in two", "gradients in shards"])
def test_a_timeline_has_the_parts_of_its_prediction(plan: str) -> None:
    job = job_of(*JOBS["slow links"])
    step = simulate(job, replace(PLANS[plan], recompute=Recompute.FULL), timeline=True)
    assert step.timeline is not None
    drawn = compare_timelines(step.timeline, step.timeline)
    kernels = fmean(drawn.row("compute_s", rank).measured or 0.0 for rank in range(step.plan.pp))
    parts = ("forward", "backward", "recompute")
    assert kernels == pytest.approx(sum(step.breakdown[part] for part in parts), rel=1e-9)
