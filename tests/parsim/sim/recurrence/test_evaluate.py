"""Mixed clusters: equal nodes as one kind to the bit, folded as every rank, and what must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.errors import InputError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.plan.rules.violation import violation
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.events.step_run import events_step_time
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.simulate import simulate
from parsim.sim.step.replica_classes import DevicesOfRanks, ReplicaClasses, fold_replicas
from tests.parsim.sim.mixed_clusters import (
    BY_REPLICA,
    INSIDE,
    ONE,
    PLANS,
    cluster_of,
    fast_and_slow,
    job_on,
    narrower,
    node,
    slower,
)
from tests.parsim.sim.recurrence.planes import run_planes


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(fast_and_slow())


@pytest.fixture(scope="module")
def alike() -> tuple[Job, Job]:
    """Equal nodes, as one kind and as two groups."""
    system = node("dgx-h100")
    return (
        job_on(Cluster(system=system, num_nodes=4)),
        job_on(cluster_of(a=(system, 3), b=(system, 1))),
    )


def every_replica(devices: DevicesOfRanks) -> ReplicaClasses:
    """Each replica a class of its own: nothing is folded."""
    alone, group = np.arange(devices.dp), devices.shard_group
    return ReplicaClasses(class_of=alone, first=alone, sharers=group[:, None] == group[None, :])


def unfolded(job: Job, plan: Plan) -> Evaluation:
    return evaluate(job, plan, classes=every_replica(DevicesOfRanks.of(job.cluster, plan)))


@pytest.mark.parametrize("name", PLANS)
def test_equal_kinds_are_one_kind_to_the_bit(alike: tuple[Job, Job], name: str) -> None:
    plan = PLANS[name]
    if plan.replica_microbatches is not None:
        plan = replace(plan, replica_microbatches=None, num_microbatches=8)
    assert violation(plan, alike[1].model, alike[1].cluster) is None
    first = evaluate(alike[0], plan)
    mixed = evaluate(alike[1], plan)
    assert mixed.step_time == first.step_time
    assert (mixed.clock == first.clock).all()
    assert (mixed.reduced == first.reduced).all()
    assert (mixed.peak == first.peak).all()
    text, same = (simulate(which, plan) for which in alike)
    assert same.breakdown == pytest.approx(text.breakdown, rel=1e-12)
    assert (same.mfu, same.bubble_fraction) == pytest.approx((text.mfu, text.bubble_fraction))
    assert same.interval == text.interval
    assert same.fit == text.fit


@pytest.mark.parametrize("name", PLANS)
def test_folded_is_every_replica_to_the_bit(job: Job, name: str) -> None:
    plan = PLANS[name]
    assert violation(plan, job.model, job.cluster) is None
    folded, full = evaluate(job, plan), unfolded(job, plan)
    which = folded.step.classes.class_of
    assert folded.step_time == full.step_time
    assert (folded.clock[:, which] == full.clock).all()
    assert (folded.reduced[:, which] == full.reduced).all()
    assert (folded.peak[:, which] == full.peak).all()
    assert len(full.step.classes.first) == plan.dp


@pytest.mark.parametrize("name", PLANS)
def test_discrete_events_agree(job: Job, name: str) -> None:
    plan, result = PLANS[name], unfolded(job, PLANS[name])
    apart = np.flatnonzero(result.step.classes.sharers.sum(axis=1) > 1)
    if plan.zero_stage >= 2 and len(apart):
        with pytest.raises(InputError, match="exchange shards within every pass"):
            events_step_time(result.step)
        return
    assert events_step_time(result.step) == pytest.approx(result.step_time, rel=1e-12)
    assert events_step_time(evaluate(job, plan).step) == pytest.approx(result.step_time, rel=1e-12)


PLANES = [
    name
    for name, plan in PLANS.items()
    if plan.zero_stage < 2 and not plan.replica_microbatches and "zb" not in name
]


@pytest.mark.parametrize("name", PLANES)
def test_planes_of_ranks_agree_to_the_bit(job: Job, name: str) -> None:
    plan, full = PLANS[name], unfolded(job, PLANS[name])
    planes = run_planes(
        full.step.compiled[0], full.step.costs, np.ones((plan.pp, plan.dp, plan.tp))
    )
    assert planes.step_time == full.step_time
    assert (planes.clock == full.clock[:, :, None]).all()
    late = np.ones((plan.pp, plan.dp, plan.tp))
    late[0, 0, 0] = 4.0
    assert run_planes(full.step.compiled[0], full.step.costs, late).step_time > full.step_time


def naive(number: int, dp: int) -> ReplicaClasses:
    """All replicas as one of them."""
    return ReplicaClasses(
        class_of=np.zeros(dp, dtype=np.int64),
        first=np.array([number]),
        sharers=np.ones((1, 1), bool),
    )


def test_naive_folding_is_wrong(job: Job) -> None:
    """Priced as if all replicas were on H100s it is a third too fast; with two classes exact."""
    exact = unfolded(job, BY_REPLICA).step_time
    assert len(fold_replicas(DevicesOfRanks.of(job.cluster, BY_REPLICA)).first) == 2
    assert evaluate(job, BY_REPLICA).step_time == exact
    wrong = evaluate(job, BY_REPLICA, classes=naive(0, 4)).step_time
    assert wrong < exact * 0.7


def test_a_replica_that_waits_for_a_slow_one_is_a_class_of_its_own() -> None:
    """Three H100 replicas, one of which shares its shards with the A100 one and keeps its pace."""
    job = job_on(fast_and_slow(3, 1))
    plan = PLANS["hsdp"]
    result, full = evaluate(job, plan), unfolded(job, plan)
    which = result.step.classes.class_of
    assert which[2] not in (which[0], which[1], which[3])
    clock = full.clock.max(axis=0)
    assert (result.clock.max(axis=0)[which] == clock).all()
    assert clock[0] == clock[1] < clock[2] * 0.95
    by_kind = ReplicaClasses(class_of=np.array([0, 0, 0, 1]), first=np.array([0, 3]),
                       sharers=np.eye(2, dtype=bool))  # fmt: skip
    wrong = evaluate(job, plan, classes=by_kind).clock.max(axis=0)[0]
    assert wrong < clock[2] * 0.95


# ------------------------------------------------------------------ what must hold of any cluster

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


# ------------------------------------------------------------------------- batches, cuts, prices


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


# ---------------------------------------------------------------------------------- predictions


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
