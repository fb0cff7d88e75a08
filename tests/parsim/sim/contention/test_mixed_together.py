"""Jobs on one fabric of several kinds of node: one kind to the bit, alone as on own links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.groups import node_systems
from parsim.cluster.hardware import Cluster, Network, System
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.sim.contention.contention import simulate_contention
from parsim.sim.contention.jobs_together import JobsTogether, jobs_together
from parsim.sim.contention.placed_jobs import JobAt, shared_cluster
from parsim.sim.contention.together_timeline import together_timeline
from tests.parsim.sim.mixed_clusters import PLANS, cluster_of, job_on, narrower, node


def thin(system: System) -> System:
    """Two nodes on a leaf, below a spine of an eighth of their rate."""
    assert isinstance(system.network, Network)
    network = replace(system.network, nodes_per_leaf=2, oversubscription=8.0)
    return replace(system, network=network)


FAST, SLOW = thin(node("dgx-h100")), thin(node("dgx-a100"))


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(cluster_of(fast=(FAST, 2), slow=(SLOW, 2)))


def at(job: Job, *nodes: int, name: str = "a", plan: Plan = PLANS["replicas"]) -> JobAt:
    return JobAt(name=name, job=job, plan=plan, nodes=nodes, kinds=node_systems(job.cluster))


def run(*jobs: JobAt) -> JobsTogether:
    return jobs_together(jobs, node_systems(jobs[0].job.cluster)[0])


@pytest.mark.parametrize("name", ["replicas", "tp", "hsdp", "zero3", "cp"])
def test_equal_groups_are_one_kind_to_the_bit(name: str) -> None:
    plan = PLANS[name]
    single = job_on(Cluster(system=FAST, num_nodes=4))
    two = job_on(cluster_of(a=(FAST, 3), b=(FAST, 1)))
    result, other, third = (
        run(at(first, 0, 2, 4, 6, plan=plan), at(second, 1, 3, 5, 7, name="b", plan=plan))
        for first, second in ((single, single), (two, single), (single, two))
    )
    assert result == other == third


def test_equal_groups_are_drawn_as_one_kind_to_the_bit() -> None:
    jobs = [
        job_on(cluster)
        for cluster in (Cluster(system=FAST, num_nodes=4), cluster_of(a=(FAST, 3), b=(FAST, 1)))
    ]
    first, two = (together_timeline([at(which, 0, 2, 4, 6)], FAST)[0].spans for which in jobs)
    assert first == two


@pytest.mark.parametrize("name", ["stages", "replicas", "uneven", "tp", "zero1", "hsdp"])
def test_alone_on_its_own_places_is_the_step_on_shared_links(job: Job, name: str) -> None:
    """The nodes of a cluster of its own, and those behind another job's on the same fabric."""
    plan = PLANS[name]
    expected = simulate_contention(job, plan)
    (here,) = run(at(job, 0, 1, 2, 3, plan=plan)).jobs
    assert here.alone == pytest.approx(expected.step_time, rel=1e-12)
    assert here.closed == expected.alone
    other = at(job, 4, 5, 6, 7, name="b", plan=plan)
    _, there = run(at(job, 0, 1, 2, 3, plan=plan), other).jobs
    assert there.alone == pytest.approx(expected.step_time, rel=1e-9)


def test_rings_that_cross_one_spine_slow_each_other(job: Job) -> None:
    """A mixed job's nodes between those of a job on A100s alone."""
    plan = PLANS["no pipeline"]
    plain = job_on(Cluster(system=SLOW, num_nodes=4))
    result = run(at(job, 0, 2, 4, 6, plan=plan), at(plain, 1, 3, 5, 7, name="b", plan=plan))
    assert all(entry.slowdown > 0.01 for entry in result.jobs)
    assert result.bottleneck is not None
    assert result.bottleneck.link_class == "spine"


def test_who_is_named_first_does_not_matter(job: Job) -> None:
    """But for the switches, which here are the same."""
    plan = PLANS["no pipeline"]
    other = job_on(Cluster(system=SLOW, num_nodes=2))
    left, two = at(job, 0, 2, 4, 6, plan=plan), at(other, 1, 3, name="b", plan=PLANS["tp"])
    two = replace(two, plan=Plan(dp_replicate=4, num_microbatches=4))
    first, second = (jobs_together(jobs, FAST) for jobs in ((left, two), (two, left)))
    for a, b in zip(first.jobs, reversed(second.jobs), strict=True):
        assert a.together == pytest.approx(b.together, rel=1e-9)


def test_the_shared_clusters_nodes_are_of_who_takes_them(job: Job) -> None:
    plain = job_on(Cluster(system=SLOW, num_nodes=1))
    cluster = shared_cluster([at(job, 5, 0, 3, 4), at(plain, 1, name="b")], FAST, ["nic:3.0"])
    kinds = [node_system.device.id[:4] for node_system in node_systems(cluster)]
    assert kinds == ["h100", "a100", "h100", "a100", "a100", "h100"]
    assert cluster.system is FAST
    assert cluster.failed == ("nic:3.0",)


def test_a_node_of_two_kinds_and_lists_of_other_lengths_are_refused(job: Job) -> None:
    plain = job_on(Cluster(system=FAST, num_nodes=1))
    with pytest.raises(InputError, match="node 3 is of dgx-a100 for a and of dgx-h100 for b"):
        run(at(job, 0, 1, 2, 3), at(plain, 3, name="b", plan=Plan(dp_replicate=2)))
    text = r"cluster\.nodes=4 \(2 fast, 2 slow\), and 3 nodes are listed for it: 0, 1, 2; list 4"
    with pytest.raises(InputError, match=text):
        run(replace(at(job, 0, 1, 2, 3), nodes=(0, 1, 2)))


def test_half_a_node_of_each_kind(job: Job) -> None:
    """Two jobs of one device a node, on nodes of two: of each node the second takes the other."""
    half = [replace(entry, devices_per_node=1) for entry in (FAST, SLOW)]
    small = job_on(cluster_of(fast=(half[0], 2), slow=(half[1], 2)))
    plan = Plan(dp_replicate=4, num_microbatches=4)
    jobs = [
        replace(at(small, 0, 1, 2, 3, name=name, plan=plan), kinds=(FAST, FAST, SLOW, SLOW))
        for name in "ab"
    ]
    result = run(*jobs)
    assert result.jobs[0].alone == pytest.approx(result.jobs[1].alone, rel=1e-9)
    with pytest.raises(InputError, match="needs 1 devices of node 0, and 0 of 2 are left"):
        run(*jobs, replace(jobs[0], name="c"))


def test_a_slow_groups_interfaces_hold_back_its_own_job_only(job: Job) -> None:
    plain = job_on(Cluster(system=FAST, num_nodes=2))
    plan = PLANS["no pipeline"]
    beside = at(plain, 4, 5, name="b", plan=Plan(dp_replicate=4, num_microbatches=4))
    usual = run(at(job, 0, 1, 2, 3, plan=plan), beside)
    less = job_on(cluster_of(fast=(FAST, 2), slow=(narrower(SLOW, 8), 2)))
    slower = run(at(less, 0, 1, 2, 3, plan=plan), beside)
    assert slower.jobs[0].alone > usual.jobs[0].alone
    assert slower.jobs[1].alone == pytest.approx(usual.jobs[1].alone, rel=1e-12)
