"""Monte Carlo of steps on nodes that differ: tier B without jitter, one kind to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.sim.lateness.draws import Block
from parsim.sim.lateness.late_replicas import late_steps
from parsim.sim.lateness.monte_carlo import ranks_of, simulate_jitter
from parsim.sim.lateness.pipelines import ReplicaPipelines, ReplicaSubset, priced_plan, speeds
from parsim.sim.recurrence.evaluate import evaluate
from tests.parsim.sim.lateness.late_ranks import RecordedBlock, step_time
from tests.parsim.sim.mixed_clusters import (
    BY_REPLICA,
    PLANS,
    cluster_of,
    fast_and_slow,
    job_on,
    node,
)
from tests.parsim.sim.recurrence.planes import run_planes

STILL = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0)
UNEVEN = ("uneven", "hsdp uneven")
IN_STEP = ("zero2", "zero3", "hsdp", "hsdp uneven")


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(fast_and_slow())


@pytest.mark.parametrize("name", PLANS)
def test_without_jitter_every_step_is_tier_b_to_the_bit(job: Job, name: str) -> None:
    jittered = simulate_jitter(job, PLANS[name], STILL, steps=3)
    expected = evaluate(job, PLANS[name], memory=False).updated
    assert jittered.times == (expected,) * 3
    assert jittered.base == expected
    assert jittered.losses == jittered.alone == {}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("only", [None, "noise", "hiccups"])
def test_equal_groups_are_one_kind_to_the_bit(name: str, only: str | None) -> None:
    system, plan = node("dgx-h100"), PLANS[name]
    first = job_on(Cluster(system=system, num_nodes=4))
    two = job_on(cluster_of(a=(system, 3), b=(system, 1)))
    jitter = Jitter(hiccups=0.5, slow_ranks=((5, 1.1),))
    jitter = jitter if only is None else jitter.only(only)
    text, same = (simulate_jitter(which, plan, jitter, steps=6, seed=7) for which in (first, two))
    assert same == text


@pytest.mark.parametrize("name", [n for n in PLANS if n not in (*UNEVEN, *IN_STEP, "zero1")])
def test_speeds_alone_are_the_planes_of_each_cluster(job: Job, name: str) -> None:
    plan = PLANS[name]
    jitter = Jitter(speed_spread=0.1, noise=0.0, hiccups=0.0, slow_ranks=((3, 1.5),), clusters=2)
    jittered = simulate_jitter(job, plan, jitter, steps=4)
    (part,), ranks = priced_plan(job, plan).pipelines.parts, ranks_of(plan, jitter)
    costs = replace(part.costs, straggler=np.zeros_like(part.costs.straggler))
    for step in range(4):
        slowdown = np.exp(speeds(ranks, jitter, 0, step // 2)).transpose(0, 2, 1)
        expected = run_planes(part.compiled, costs, slowdown).step_time
        assert jittered.times[step] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in PLANS if name not in UNEVEN])
def test_noise_and_hiccups_are_a_simulation_of_every_rank(job: Job, name: str) -> None:
    plan = PLANS[name]
    jitter = Jitter(speed_spread=0.05, noise=0.1, hiccups=2.0, hiccup_length=0.05)
    pipelines, ranks = priced_plan(job, plan).pipelines, ranks_of(plan, jitter)
    (part,) = pipelines.parts
    block = RecordedBlock(
        part.compiled,
        ranks,
        jitter,
        np.arange(2),
        seed=5,
        number=0,
        one_by_one=frozenset(range(plan.pp)),
    )
    block.record()
    result = late_steps(pipelines, ranks, [block])
    for step in range(2):
        expected = step_time(part.compiled, part.costs, ranks, block, step)
        assert result[step] == pytest.approx(expected, rel=1e-6)  # draws are single precision


def blocks(pipelines: ReplicaPipelines, plan: Plan, jitter: Jitter, steps: int) -> list[Block]:
    ranks = ranks_of(plan, jitter)
    return [
        Block(
            part.compiled,
            ranks,
            jitter,
            np.arange(steps),
            seed=5,
            number=0,
            one_by_one=frozenset(range(plan.pp)),
            subset=ReplicaSubset(index, part.replicas),
        )
        for index, part in enumerate(pipelines.parts)
    ]


def test_uneven_batches_are_parts_whose_replicas_keep_their_speeds(job: Job) -> None:
    plan, jitter = PLANS["uneven"], Jitter(noise=0.0)
    pipelines = priced_plan(job, plan).pipelines
    assert [part.compiled.schedule.num_microbatches for part in pipelines.parts] == [12, 10, 6, 4]
    whole = speeds(ranks_of(plan, jitter), jitter, 5, 1)
    for part, block in zip(pipelines.parts, blocks(pipelines, plan, jitter, 3), strict=True):
        assert block.shape == (len(part.replicas), 3)
        added = next(block.late([1], [2.0]))
        most = np.expm1(whole[1].max(axis=0)[part.replicas])
        assert np.asarray(added)[:, 1] == pytest.approx(2.0 * most, rel=1e-12)


def test_parts_draw_apart(job: Job) -> None:
    plan, jitter = PLANS["uneven"], Jitter(speed_spread=0.0, hiccups=0.0)
    result = [
        np.asarray(next(block.late([0], [1.0])))[0]
        for block in blocks(priced_plan(job, plan).pipelines, plan, jitter, 500)
    ]
    assert (np.abs(np.corrcoef(result)[np.triu_indices(4, 1)]) < 0.2).all()


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_batches_have_steps_that_differ(job: Job, name: str) -> None:
    jittered = simulate_jitter(job, PLANS[name], Jitter(), steps=40)
    again = simulate_jitter(job, PLANS[name], Jitter(), steps=40)
    assert again == jittered
    assert len(set(jittered.times)) == 40
    assert jittered.base < jittered.mean < 1.1 * jittered.base


def test_a_slow_rank_costs_nothing_where_others_are_waited_for(job: Job) -> None:
    """The H100s' replicas end half as late as the A100s'; whoever is late among these is seen."""
    jitters = [replace(STILL, slow_ranks=((rank, 1.2),)) for rank in (0, 7)]
    fast, slow = (simulate_jitter(job, BY_REPLICA, jitter, steps=2) for jitter in jitters)
    assert fast.losses["slow_ranks"] == pytest.approx(0.0, abs=1e-3 * fast.base)
    assert slow.losses["slow_ranks"] > 0.1 * slow.base


@pytest.mark.parametrize("name", ["replicas", "hsdp", "stages"])
def test_the_order_in_which_groups_are_written_does_not_matter(name: str) -> None:
    fast, slow = (node("dgx-h100"), 2), (node("dgx-a100"), 2)
    first, two = job_on(cluster_of(fast=fast, slow=slow)), job_on(cluster_of(slow=slow, fast=fast))
    plan = replace(PLANS[name], node_order=("fast", "slow"))
    assert simulate_jitter(two, plan, Jitter(), steps=6) == simulate_jitter(
        first, plan, Jitter(), steps=6
    )
