"""Mixed clusters: equal nodes as one kind to the bit, folded as every rank, and what must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan, PlanTable
from parsim.plan.rules import violation
from parsim.sim.evaluate import evaluate
from parsim.sim.mixed import MixedEvaluation, evaluate_mixed
from parsim.sim.mixed_events import mixed_step_time
from parsim.sim.plane import run_planes
from parsim.sim.simulate import plan_shape, simulate
from parsim.sim.slots import Replicas, Slots, every_replica, fold_replicas
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


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(fast_and_slow())


@pytest.fixture(scope="module")
def alike() -> tuple[Job, Job]:
    """The same nodes as one kind and as two groups."""
    system = node("dgx-h100")
    return (
        job_on(Cluster(system=system, num_nodes=4)),
        job_on(cluster_of(a=(system, 3), b=(system, 1))),
    )


def unfolded(job: Job, plan: Plan) -> MixedEvaluation:
    return evaluate_mixed(job, plan, replicas=every_replica(Slots.of(job.cluster, plan)))


@pytest.mark.parametrize("name", PLANS)
def test_equal_kinds_are_one_kind_to_the_bit(alike: tuple[Job, Job], name: str) -> None:
    plan = PLANS[name]
    if plan.replica_microbatches is not None:
        plan = replace(plan, replica_microbatches=None, num_microbatches=8)
    assert violation(plan, alike[1].model, alike[1].cluster) is None
    one = evaluate(alike[0], PlanTable.of([plan]), plan_shape(plan))
    mixed = evaluate_mixed(alike[1], plan)
    assert mixed.step_time == float(one.step_time[0])
    assert (mixed.clock == one.run.clock).all()
    assert (mixed.tail.reduced == one.tail.reduced).all()
    assert (mixed.peak == one.memory.peak).all()
    said, same = (simulate(which, plan) for which in alike)
    assert same.breakdown == pytest.approx(said.breakdown, rel=1e-12)
    assert (same.mfu, same.bubble_fraction) == pytest.approx((said.mfu, said.bubble_fraction))
    assert same.interval == said.interval
    assert same.fits() == said.fits()


@pytest.mark.parametrize("name", PLANS)
def test_folded_is_every_replica_to_the_bit(job: Job, name: str) -> None:
    plan = PLANS[name]
    assert violation(plan, job.model, job.cluster) is None
    folded, full = evaluate_mixed(job, plan), unfolded(job, plan)
    which = folded.replicas.class_of
    assert folded.step_time == full.step_time
    assert (folded.clock[:, which] == full.clock).all()
    assert (folded.tail.reduced[:, which] == full.tail.reduced).all()
    assert (folded.peak[:, which] == full.peak).all()
    assert len(full.replicas.first) == plan.dp


@pytest.mark.parametrize("name", PLANS)
def test_discrete_events_agree(job: Job, name: str) -> None:
    plan, found = PLANS[name], unfolded(job, PLANS[name])
    apart = np.flatnonzero(found.replicas.meets.sum(axis=1) > 1)
    if plan.zero_stage >= 2 and len(apart):
        with pytest.raises(InputError, match="exchange shards within every pass"):
            mixed_step_time(found)
        return
    assert mixed_step_time(found) == pytest.approx(found.step_time, rel=1e-12)
    assert mixed_step_time(evaluate_mixed(job, plan)) == pytest.approx(found.step_time, rel=1e-12)


PLANES = [
    name
    for name, plan in PLANS.items()
    if plan.zero_stage < 2 and not plan.replica_microbatches and "zb" not in name
]


@pytest.mark.parametrize("name", PLANES)
def test_planes_of_ranks_agree_to_the_bit(job: Job, name: str) -> None:
    plan, full = PLANS[name], unfolded(job, PLANS[name])
    planes = run_planes(full.graphs[0], full.costs, np.ones((plan.pp, plan.dp, plan.tp)))
    assert planes.step_time == full.step_time
    assert (planes.clock == full.clock[:, :, None]).all()
    late = np.ones((plan.pp, plan.dp, plan.tp))
    late[0, 0, 0] = 4.0
    assert run_planes(full.graphs[0], full.costs, late).step_time > full.step_time


def naive(number: int, dp: int) -> Replicas:
    """All replicas as one of them."""
    return Replicas(
        class_of=np.zeros(dp, dtype=np.int64), first=np.array([number]), meets=np.ones((1, 1), bool)
    )


def test_naive_folding_is_wrong(job: Job) -> None:
    """As if all replicas were on the H100s: a third too fast; refined, two classes are exact."""
    exact = unfolded(job, BY_REPLICA).step_time
    assert len(fold_replicas(Slots.of(job.cluster, BY_REPLICA)).first) == 2
    assert evaluate_mixed(job, BY_REPLICA).step_time == exact
    wrong = evaluate_mixed(job, BY_REPLICA, replicas=naive(0, 4)).step_time
    assert wrong < exact * 0.7


def test_a_replica_that_waits_for_a_slow_one_is_a_class_of_its_own() -> None:
    """Three H100 replicas, one of which shares its shards with the A100 one and keeps its pace."""
    job = job_on(fast_and_slow(3, 1))
    plan = PLANS["hsdp"]
    found, full = evaluate_mixed(job, plan), unfolded(job, plan)
    which = found.replicas.class_of
    assert which[2] not in (which[0], which[1], which[3])
    clock = full.clock.max(axis=0)
    assert (found.clock.max(axis=0)[which] == clock).all()
    assert clock[0] == clock[1] < clock[2] * 0.95
    by_kind = Replicas(class_of=np.array([0, 0, 0, 1]), first=np.array([0, 3]),
                       meets=np.eye(2, dtype=bool))  # fmt: skip
    wrong = evaluate_mixed(job, plan, replicas=by_kind).clock.max(axis=0)[0]
    assert wrong < clock[2] * 0.95


# ------------------------------------------------------------------ what must hold of any cluster

TIMES = st.floats(1.0, 4.0)
NAMES = st.sampled_from(sorted(PLANS))


@settings(max_examples=40)
@given(name=NAMES, device=TIMES, network=TIMES, which=st.integers(0, 1))
def test_a_slower_node_never_speeds_a_step_up(
    name: str, device: float, network: float, which: int
) -> None:
    systems = [node("dgx-h100"), node("dgx-a100")]
    before = job_on(cluster_of(fast=(systems[0], 2), slow=(systems[1], 2)))
    systems[which] = narrower(slower(systems[which], device), network)
    after = job_on(cluster_of(fast=(systems[0], 2), slow=(systems[1], 2)))
    plan = PLANS[name]
    steps = [evaluate_mixed(one, plan, memory=False).step_time for one in (before, after)]
    assert steps[1] >= steps[0] * (1.0 - 1e-9)


@settings(max_examples=20)
@given(name=NAMES, order=st.permutations(["fast", "fast", "slow", "slow"]))
def test_nodes_in_another_order_with_the_plan_that_names_it_are_the_same(
    name: str, order: list[str]
) -> None:
    """One group of each node in that order, or two groups and a plan that orders their nodes."""
    kinds = {"fast": node("dgx-h100"), "slow": node("dgx-a100")}
    plan = replace(PLANS[name], node_order=tuple(order))
    own = job_on(cluster_of(**{f"n{i}": (kinds[which], 1) for i, which in enumerate(order)}))
    two = job_on(fast_and_slow())
    assert evaluate_mixed(two, plan).step_time == evaluate_mixed(own, PLANS[name]).step_time


@settings(max_examples=20)
@given(name=NAMES)
def test_a_mix_is_between_clusters_of_either_kind(name: str) -> None:
    plan, fast, slow = PLANS[name], node("dgx-h100"), node("dgx-a100")
    steps = [
        evaluate_mixed(job_on(cluster), plan, memory=False).step_time
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
    with pytest.raises(InputError, match="equal numbers of micro-batches"):
        evaluate(alike[0], PlanTable.of([plan]), plan_shape(plan))


def test_a_replica_with_fewer_micro_batches_keeps_fewer_activations(job: Job) -> None:
    plan = replace(BY_REPLICA, replica_microbatches=(15, 15, 1, 1), num_microbatches=15)
    found = evaluate_mixed(job, plan)
    assert found.peak[0, 1] < found.peak[0, 0]
    assert found.peak[1, 1] == found.peak[1, 0]


def test_gradients_wait_for_the_slowest_replica(job: Job) -> None:
    found = evaluate_mixed(job, BY_REPLICA)
    assert (found.clock[:, 0] < found.clock[:, 1]).all()
    assert (found.tail.reduced >= found.clock.max(axis=1, keepdims=True)).all()


def test_links_of_different_speed_count_at_the_slowest() -> None:
    """Half of the nodes with a tenth of the network: messages and reductions have its speed."""
    fast = node("dgx-h100")
    slow = narrower(fast, 10.0)
    half, none, all_ = (
        evaluate_mixed(job_on(cluster), replace(ONE, tp=2, dp_replicate=2))
        for cluster in (
            cluster_of(a=(fast, 2), b=(slow, 2)), cluster_of(a=(fast, 4)), cluster_of(a=(slow, 4)),
        )
    )  # fmt: skip
    assert half.costs.hop[0, 0] == all_.costs.hop[0, 0] > 5.0 * none.costs.hop[0, 0]
    assert half.costs.bucket_time[0, 0] == none.costs.bucket_time[0, 0]  # among fast nodes
    assert half.costs.bucket_time[1, 0] == all_.costs.bucket_time[1, 0]
    assert (half.costs.forward == none.costs.forward).all()


def test_a_tensor_group_of_two_kinds_runs_at_the_slowest(job: Job) -> None:
    plan = PLANS["tp across kinds"]
    mixed = evaluate_mixed(job, plan).costs
    slow = evaluate_mixed(job_on(cluster_of(a=(node("dgx-a100"), 4))), plan).costs
    fast = evaluate_mixed(job_on(cluster_of(a=(node("dgx-h100"), 4))), plan).costs
    assert (mixed.forward == np.maximum(slow.forward, fast.forward)).all()


def test_pcie_on_one_node_slows_its_tensor_groups_alone() -> None:
    pair = replace(ONE, tp=2, dp_replicate=2, rank_order=INSIDE)
    job = job_on(cluster_of(a=(node("dgx-a100"), 2), b=(node("a100-pcie-node"), 2)))
    found = evaluate_mixed(job, pair)
    alone = evaluate_mixed(job_on(cluster_of(a=(node("dgx-a100"), 4))), pair)
    assert (found.costs.forward[:, 0] == alone.costs.forward[:, 0]).all()
    assert (found.costs.exposed_forward[:, 1] > 3.0 * found.costs.exposed_forward[:, 0]).all()


# ---------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("name", PLANS)
def test_the_prediction_names_each_ranks_device(job: Job, name: str) -> None:
    plan = PLANS[name]
    found = simulate(job, plan, timeline=True)
    assert sum(found.breakdown.values()) == pytest.approx(found.step_time, rel=1e-9)
    assert 0.0 <= found.bubble_fraction < 1.0
    covered = sorted(r for slot in found.slots if slot.pipeline_rank == 0 for r in slot.replicas)
    assert covered == list(range(plan.dp))
    assert {name for slot in found.slots for name in slot.groups} == {"fast", "slow"}
    document = found.to_json()["rank_groups"]
    assert len(document) == plan.pp * len({slot.replicas for slot in found.slots})
    assert found.timeline is not None
    spans = found.timeline.spans
    assert max(span.end for span in spans) == pytest.approx(found.step_time, rel=1e-9)
    assert len(found.timeline.meta["rank_labels"]) == len(document)
    actions = [span for span in spans if span.stream == "compute" and span.kind == "F"]
    counts = {slot.replicas: slot.microbatches for slot in found.slots}
    assert len(actions) == sum(counts.values()) * plan.num_stages


def test_memory_is_that_of_the_device_that_is_full() -> None:
    """T4s of 16 GB beside A100s: the plan is refused for the T4s, by name."""
    from parsim.cluster.reader import load_catalog
    from parsim.search.relax import shortage_message

    small = replace(node("a100-pcie-node"), device=load_catalog().device("t4"))
    job = job_on(cluster_of(big=(node("dgx-a100"), 2), small=(small, 2)), layers=12)
    plan = replace(ONE, precision="fp16", dp_replicate=4)
    found = simulate(job, plan)
    assert not found.fits()
    assert found.worst_slot.groups == ("small",)
    assert found.capacity == small.device.memory
    assert "(t4 of nodes small)" in shortage_message(job, plan)
    assert simulate(job, replace(plan, stage_layers=(11, 1))).fits()


def test_the_interval_is_as_wide_as_of_either_kind(job: Job) -> None:
    found = simulate(job, ONE)
    assert found.interval.low < found.step_time < found.interval.high
    assert "mixed cluster" in found.interval.basis
    assert any("nodes of different kinds" in note for note in found.notes)
