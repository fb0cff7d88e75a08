"""Mixed clusters: equal nodes as one kind to the bit, folded as every rank, and what must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.plan.rules.violation import violation
from parsim.sim.events.step_run import events_step_time
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.simulate import simulate
from parsim.sim.step.replica_classes import DevicesOfRanks, ReplicaClasses, fold_replicas
from tests.parsim.sim.mixed_clusters import (
    BY_REPLICA,
    PLANS,
    fast_and_slow,
    job_on,
)
from tests.parsim.sim.recurrence.planes import run_planes


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
