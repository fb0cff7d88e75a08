"""Batches, cuts and prices of mixed clusters, and what is predicted of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.simulate import simulate
from tests.parsim.sim.mixed_clusters import (
    BY_REPLICA,
    INSIDE,
    ONE,
    PLANS,
    cluster_of,
    job_on,
    narrower,
    node,
)


def test_batches_by_speed_are_faster_and_conserve_the_batch(job: Job) -> None:
    even, uneven = BY_REPLICA, PLANS["uneven"]
    by_speed = replace(uneven, replica_microbatches=(11, 11, 5, 5), num_microbatches=11)
    assert even.global_batch_size == uneven.global_batch_size == by_speed.global_batch_size == 32
    assert simulate(job, by_speed).step_time < 0.8 * simulate(job, even).step_time


def test_uneven_batches_on_equal_nodes_cost_the_largest(alike: tuple[Job, Job]) -> None:
    plan = replace(BY_REPLICA, replica_microbatches=(8, 8, 8, 2), num_microbatches=8)
    whole = simulate(alike[0], BY_REPLICA)
    assert simulate(alike[0], plan).step_time == whole.step_time
    assert evaluate(alike[0], plan).step_time == whole.step_time


def test_a_replica_with_fewer_micro_batches_keeps_fewer_activations(job: Job) -> None:
    plan = replace(BY_REPLICA, replica_microbatches=(15, 15, 1, 1), num_microbatches=15)
    evaluation = evaluate(job, plan)
    assert evaluation.peak[0, 1] < evaluation.peak[0, 0]
    assert evaluation.peak[1, 1] == evaluation.peak[1, 0]


def test_gradients_wait_for_the_slowest_replica(job: Job) -> None:
    evaluation = evaluate(job, BY_REPLICA)
    assert (evaluation.clock[:, 0] < evaluation.clock[:, 1]).all()
    assert (evaluation.reduced >= evaluation.clock.max(axis=1, keepdims=True)).all()


def test_links_of_different_speed_count_at_the_slowest() -> None:
    """Half of the nodes with a tenth of the network: messages and reductions have its speed."""
    fast = node("dgx-h100")
    slow = narrower(fast, 10.0)
    half, none, all_ = (
        evaluate(job_on(cluster), replace(ONE, tp=2, dp_replicate=2)).step.costs
        for cluster in (
            cluster_of(a=(fast, 2), b=(slow, 2)), cluster_of(a=(fast, 4)), cluster_of(a=(slow, 4)),
        )
    )  # fmt: skip
    assert half.hop[0, 0] == all_.hop[0, 0] > 5.0 * none.hop[0, 0]
    assert half.bucket_time[0, 0] == none.bucket_time[0, 0]  # among fast nodes
    assert half.bucket_time[1, 0] == all_.bucket_time[1, 0]
    assert (half.forward == none.forward).all()


def test_a_tensor_group_of_two_kinds_runs_at_the_slowest(job: Job) -> None:
    plan = PLANS["tp across kinds"]
    mixed = evaluate(job, plan).step.costs
    slow = evaluate(job_on(cluster_of(a=(node("dgx-a100"), 4))), plan).step.costs
    fast = evaluate(job_on(cluster_of(a=(node("dgx-h100"), 4))), plan).step.costs
    assert (mixed.forward == np.maximum(slow.forward, fast.forward)).all()


def test_pcie_on_one_node_slows_its_tensor_groups_alone() -> None:
    pair = replace(ONE, tp=2, dp_replicate=2, rank_order=INSIDE)
    job = job_on(cluster_of(a=(node("dgx-a100"), 2), b=(node("a100-pcie-node"), 2)))
    costs = evaluate(job, pair).step.costs
    alone = evaluate(job_on(cluster_of(a=(node("dgx-a100"), 4))), pair).step.costs
    assert (costs.forward[:, 0] == alone.forward[:, 0]).all()
    assert (costs.exposed_forward[:, 1] > 3.0 * costs.exposed_forward[:, 0]).all()


@pytest.mark.parametrize("name", PLANS)
def test_the_prediction_names_each_ranks_device(job: Job, name: str) -> None:
    plan = PLANS[name]
    prediction = simulate(job, plan, timeline=True)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-9)
    assert 0.0 <= prediction.bubble_fraction < 1.0
    covered = sorted(
        r for use in prediction.rank_uses if use.pipeline_rank == 0 for r in use.replicas
    )
    assert covered == list(range(plan.dp))
    assert {name for use in prediction.rank_uses for name in use.groups} == {"fast", "slow"}
    document = prediction.to_json()["rank_groups"]
    assert len(document) == plan.pp * len({use.replicas for use in prediction.rank_uses})
    assert prediction.timeline is not None
    spans = prediction.timeline.spans
    assert max(span.end for span in spans) == pytest.approx(prediction.step_time, rel=1e-9)
    assert len(prediction.timeline.meta["rank_labels"]) == len(document)
    actions = [span for span in spans if span.stream == "compute" and span.kind == "F"]
    counts = {use.replicas: use.microbatches for use in prediction.rank_uses}
    assert len(actions) == sum(counts.values()) * plan.num_stages


def test_memory_is_that_of_the_device_that_is_full() -> None:
    """T4s of 16 GB beside A100s: the plan is refused for the T4s, by name."""
    from parsim.cluster.reader import load_catalog
    from parsim.planner.nearest_miss import shortage_message

    small = replace(node("a100-pcie-node"), device=load_catalog().device("t4"))
    job = job_on(cluster_of(big=(node("dgx-a100"), 2), small=(small, 2)), layers=12)
    plan = replace(ONE, precision="fp16", dp_replicate=4)
    prediction = simulate(job, plan)
    assert prediction.fit is Fit.TOO_LARGE
    assert prediction.fullest.groups == ("small",)
    assert prediction.fullest.capacity == small.device.memory
    assert "(t4 of nodes small)" in shortage_message(job, plan)
    assert simulate(job, replace(plan, stage_layers=(11, 1))).fit is Fit.FITS


def test_the_interval_is_as_wide_as_of_either_kind(job: Job) -> None:
    prediction = simulate(job, ONE)
    assert prediction.interval.low < prediction.step_time < prediction.interval.high
    assert "mixed cluster" in prediction.interval.basis
    assert any("nodes of different kinds" in note for note in prediction.notes)
