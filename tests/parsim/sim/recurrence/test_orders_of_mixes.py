"""What must hold of any mixed cluster."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.sim.recurrence.evaluate import evaluate
from tests.parsim.sim.mixed_clusters import (
    PLANS,
    cluster_of,
    fast_and_slow,
    job_on,
    narrower,
    node,
    slower,
)

TIMES = st.floats(1.0, 4.0)
NAMES = st.sampled_from(sorted(PLANS))


@settings(max_examples=15)
@given(name=NAMES, device=TIMES, network=TIMES, which=st.integers(0, 1))
def test_a_slower_node_never_speeds_a_step_up(
    name: str, device: float, network: float, which: int
) -> None:
    systems = [node("dgx-h100"), node("dgx-a100")]
    before = job_on(cluster_of(fast=(systems[0], 2), slow=(systems[1], 2)))
    systems[which] = narrower(slower(systems[which], device), network)
    after = job_on(cluster_of(fast=(systems[0], 2), slow=(systems[1], 2)))
    plan = PLANS[name]
    steps = [evaluate(entry, plan, memory=False).step_time for entry in (before, after)]
    assert steps[1] >= steps[0] * (1.0 - 1e-9)


def test_a_faster_node_has_no_more_of_a_gather_to_show_than_the_one_it_waits_for() -> None:
    """Its shorter forward hides less, in seconds that it would wait anyway."""
    whole = load_catalog().system("aws-p5")
    half = slower(whole, 2.0)
    plan = Plan(dp_shard=16, zero_stage=1, microbatch_size=4, num_microbatches=1)
    mixed, slow = (
        evaluate(
            Job(
                model=build_transformer(model_spec("bert-large")),
                cluster=cluster_of(a=(first, 1), b=(half, 1)),
                software=software("pytorch-ddp"),
            ),
            plan,
            memory=False,
        )
        for first in (whole, half)
    )
    assert slow.step.costs.gather.max() > 0.0
    assert mixed.step_time <= slow.step_time * (1.0 + 1e-9)


@settings(max_examples=8)
@given(name=NAMES, order=st.permutations(["fast", "fast", "slow", "slow"]))
def test_nodes_in_another_order_with_the_plan_that_names_it_are_the_same(
    name: str, order: list[str]
) -> None:
    """One group of each node in that order, or two groups and a plan that orders their nodes."""
    kinds = {"fast": node("dgx-h100"), "slow": node("dgx-a100")}
    plan = replace(PLANS[name], node_order=tuple(order))
    reordered = job_on(cluster_of(**{f"n{i}": (kinds[which], 1) for i, which in enumerate(order)}))
    two = job_on(fast_and_slow())
    assert evaluate(two, plan).step_time == evaluate(reordered, PLANS[name]).step_time


@settings(max_examples=8)
@given(name=NAMES)
def test_a_mix_is_between_clusters_of_either_kind(name: str) -> None:
    plan, fast, slow = PLANS[name], node("dgx-h100"), node("dgx-a100")
    steps = [
        evaluate(job_on(cluster), plan, memory=False).step_time
        for cluster in (cluster_of(a=(fast, 4)), fast_and_slow(), cluster_of(a=(slow, 4)))
    ]
    # the A100's node has the shorter latency of small all-reduces, so that it is not all slower
    assert steps[0] < steps[1] < steps[2] * 1.0001
