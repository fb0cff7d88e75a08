"""Ranges, replicas, HSDP, caps of memory and bubble: the search finds what brute force finds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.errors import NoFeasiblePlan
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.space import Between
from parsim.planner.search import search
from parsim.planner.space import enumerate_plans
from parsim.sim import simulate

ALL = 10_000


@pytest.fixture(scope="module")
def narrow(space: PlanSpace) -> PlanSpace:
    return replace(
        space, schedule=("1f1b",), cp=(1,), recompute=(Recompute.NONE,), microbatch_size=(1, 2)
    )


def test_ranges_and_replicas(job: Job, narrow: PlanSpace) -> None:
    every = enumerate_plans(job, narrow).table
    some = enumerate_plans(job, replace(narrow, tp=Between(most=2), dp=(2, 4))).table
    assert every is not None
    assert some is not None
    plans = [every.plan(row) for row in range(len(every))]
    wanted = [plan for plan in plans if plan.tp <= 2 and plan.dp in (2, 4)]
    assert [some.plan(row) for row in range(len(some))] == wanted
    assert len(wanted) < len(plans)


def test_hybrid_shards_are_found_and_priced_as_they_are_simulated(
    job: Job, narrow: PlanSpace
) -> None:
    hybrid = search(job, replace(narrow, dp_shard=Between(), zero_stage=(3,)), top=ALL)
    parts = [r for r in hybrid.plans if r.plan.dp_replicate > 1 and r.plan.dp_shard > 1]
    assert parts
    for ranked in parts:
        predicted = simulate(job, ranked.plan)
        assert ranked.step_time == pytest.approx(predicted.step_time, rel=1e-12)
        assert ranked.peak_allocated == pytest.approx(max(predicted.peak_allocated), rel=1e-12)
        assert f"shard{ranked.plan.dp_shard}" in ranked.plan.label()
    # bounds never put a better one behind: the first of few is the first of all
    first = search(job, replace(narrow, dp_shard=Between(), zero_stage=(3,)), top=1).plans[0]
    assert first.plan == hybrid.plans[0].plan


def test_a_memory_cap_is_a_smaller_device(job: Job, narrow: PlanSpace) -> None:
    every = search(job, narrow, top=ALL).plans
    cap = sorted(r.peak_allocated for r in every)[len(every) // 2] * 1.3
    capped = search(job, replace(narrow, memory_cap=cap, memory_margin=0.0), top=ALL)
    assert 0 < len(capped.plans) < len(every)
    assert all(r.peak_allocated <= cap for r in capped.plans)
    with pytest.raises(NoFeasiblePlan, match="nothing fits"):
        search(job, replace(narrow, memory_cap=1e6))


def test_the_largest_bubble(job: Job, narrow: PlanSpace) -> None:
    every = search(job, replace(narrow, pp=(2, 4)), top=ALL).plans
    most = sorted(r.bubble_fraction for r in every)[len(every) // 2]
    calm = search(job, replace(narrow, pp=(2, 4), max_bubble=most), top=ALL)
    wanted = [r.plan for r in every if r.bubble_fraction <= most]
    assert [r.plan for r in calm.plans] == wanted
    assert calm.counts["idle"] == len(every) - len(wanted)
    assert sum(calm.counts.values()) == 2 * calm.counts["enumerated"]
    with pytest.raises(NoFeasiblePlan, match=r"idles less than max_bubble=0\.0001"):
        search(job, replace(narrow, pp=(4,), max_bubble=1e-4))


def of_experts(seed: int) -> tuple[Job, PlanSpace]:
    """A short model with experts on a few devices, and a part of its space."""
    rng = random.Random(seed)
    spec = replace(model_spec("mixtral-8x7b"), num_layers=4, seq_len=512)
    node = replace(load_catalog().system("dgx-h100"), devices_per_node=rng.choice((4, 8)))
    job = Job(
        model=build_transformer(spec),
        cluster=Cluster(system=node, num_nodes=rng.choice((1, 2))),
        software=software(rng.choice(("generic", "megatron-lm", "torchtitan"))),
    )
    space = PlanSpace(
        global_batch_size=16,
        microbatch_size=(1,),
        zero_stage=tuple(sorted(rng.sample((0, 1, 2, 3), 2))),
        recompute=(Recompute.NONE, Recompute.FULL),
        dp_shard=rng.choice((Between(), (2, 4))),
        common=Plan(precision="bf16"),
    )
    orders = (space.common.rank_order, ("dp_replicate", "pp", "dp_shard", "cp", "tp"))
    return job, space.with_axes({"rank_order": orders, "etp": (1, 2)})


@pytest.mark.parametrize("seed", range(4))
def test_experts_have_ranks_in_every_plan(seed: int) -> None:
    job, space = of_experts(seed)
    counted = enumerate_plans(job, space)
    table = counted.table
    assert table is not None
    assert counted.enumerated == counted.illegal + len(table)
    assert any("does not divide dp_shard=" in message for message in counted.reasons)
    for row in random.Random(seed).sample(range(len(table)), min(300, len(table))):
        assert illegal(job, table.plan(row)) is None
