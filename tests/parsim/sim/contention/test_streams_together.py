"""Periodic streams of jobs on one fabric: free where nothing meets them, else for both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.background import Background, Stream
from parsim.cluster.hardware import Network
from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.sim.contention.contention import simulate_contention
from parsim.sim.contention.jobs_together import JobsTogether, jobs_together
from parsim.sim.contention.placed_jobs import JobAt
from tests.parsim.sim.mixed_clusters import PLANS, cluster_of, job_on, node

PLAN = Plan(dp_replicate=16, num_microbatches=1)
DISKS = 1e11


def thin(job: Job) -> Job:
    """Two nodes on a leaf, below a thin spine."""
    network = job.system.network
    assert isinstance(network, Network)
    network = replace(network, nodes_per_leaf=2, oversubscription=8.0)
    return replace(job, cluster=replace(job.cluster, system=replace(job.system, network=network)))


def checkpoint(size: float = 1e9, every: int = 50, name: str = "checkpoint") -> Stream:
    return Stream(name=name, source="devices", target="storage", size=size, every=every)


def at(job: Job, nodes: tuple[int, ...], *streams: Stream, name: str = "a") -> JobAt:
    return JobAt(name=name, job=job, plan=PLAN, nodes=nodes, streams=streams)


def run(*jobs: JobAt, storage: float = DISKS) -> JobsTogether:
    return jobs_together(jobs, jobs[0].job.system, storage=storage)


def test_a_tiny_stream_costs_nothing(job: Job) -> None:
    slow = thin(job)
    quiet = run(at(slow, (0, 2)), at(slow, (1, 3), name="b"))
    result = run(at(slow, (0, 2), checkpoint(1.0)), at(slow, (1, 3), name="b"))
    for before, after in zip(quiet.jobs, result.jobs, strict=True):
        assert after.together == pytest.approx(before.together, rel=1e-9)
        assert after.alone == pytest.approx(before.alone, rel=1e-9)


def test_without_a_common_link_a_stream_is_its_owners(job: Job) -> None:
    """Copies to hosts, on nodes of its own; and as they are where there is one job."""
    first = Stream(name="offload", source="devices", target="hosts", size=3e9, every=20)
    slow = thin(job)
    result = run(at(slow, (0, 1), first), at(slow, (2, 3), name="b"))
    assert result.shared_links == 0
    assert [first.slowdown for first in result.jobs] == [0.0, 0.0]
    alone = simulate_contention(slow, PLAN, background=Background(streams=(first,)))
    assert result.jobs[0].alone == pytest.approx(alone.step_time, rel=1e-9)
    assert result.jobs[0].streams[0].cost.cost == pytest.approx(alone.streams[0].cost, rel=1e-9)
    assert result.jobs[0].streams[0].others == {"b": 0.0}
    assert result.jobs[1].streams == ()


def test_a_neighbours_checkpoint_costs_both(job: Job) -> None:
    """On average over the steps between two of it: ten times as often costs ten times as much."""
    slow = thin(job)
    often, seldom = (
        run(at(slow, (0, 2), checkpoint(every=every)), at(slow, (1, 3), name="b"))
        for every in (50, 500)
    )
    costs = [
        (entry.jobs[0].streams[0].cost.cost, entry.jobs[0].streams[0].others["b"])
        for entry in (often, seldom)
    ]
    assert min(costs[0]) > 0.0
    assert costs[0] == pytest.approx([10.0 * cost for cost in costs[1]], rel=1e-9)
    quiet = run(at(slow, (0, 2)), at(slow, (1, 3), name="b"))
    for index, cost in enumerate(costs[0]):
        expected = quiet.jobs[index].together + cost
        assert often.jobs[index].together == pytest.approx(expected, rel=1e-12)


def test_a_checkpoint_that_never_ends_in_time_is_its_owners_pace(job: Job) -> None:
    """16 devices' 2 GB into 10 GB/s every second step: 3.2 s for two steps."""
    slow = thin(job)
    result = run(
        at(slow, (0, 2), checkpoint(2e9, every=2)), at(slow, (1, 3), name="b"), storage=1e10
    )
    first, two = result.jobs
    assert first.streams[0].cost.overdue
    assert first.together == pytest.approx(1.6, rel=1e-6)
    assert first.alone == pytest.approx(1.6, rel=1e-6)
    assert 0.0 < first.streams[0].others["b"] < two.together - two.alone


def test_a_long_checkpoint_goes_on_as_it_began(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = thin(job)
    jobs = at(slow, (0, 2), checkpoint(2e9, every=1000)), at(slow, (1, 3), name="b")
    some = run(*jobs, storage=5e9).jobs
    monkeypatch.setattr("parsim.sim.contention.streams_together.MOST_STEPS", 1000)
    every = run(*jobs, storage=5e9).jobs
    first, second = (entry[0].streams[0] for entry in (some, every))
    assert first.cost.seconds == pytest.approx(second.cost.seconds, rel=0.05)
    assert first.cost.cost == pytest.approx(second.cost.cost, rel=0.2, abs=1e-5)
    assert first.others["b"] == pytest.approx(second.others["b"], rel=0.2, abs=1e-5)


def test_streams_of_every_step_and_rates_stand_in_the_step(job: Job) -> None:
    slow = thin(job)
    streams = (
        Stream(name="batches", source="storage", target="hosts", size=1e7),
        Stream(name="offload", source="devices", target="hosts", rate=1e9),
        checkpoint(),
    )
    first, two = run(at(slow, (0, 2), *streams), at(slow, (1, 3), name="b")).jobs
    batches, offload, last = first.streams
    assert (batches.cost.cost, offload.cost.cost) == (0.0, 0.0)
    assert batches.cost.seconds is not None
    assert offload.cost.seconds is None
    assert last.cost.cost > 0.0
    assert two.together > two.alone


def test_streams_of_equal_groups_are_those_of_one_kind_to_the_bit() -> None:
    system = node("dgx-h100")
    assert system.network is not None
    system = replace(system, network=replace(system.network, nodes_per_leaf=2, oversubscription=8))
    first = job_on(cluster_of(a=(system, 4)))
    two = job_on(cluster_of(a=(system, 1), b=(system, 3)))
    streams = (checkpoint(1e8, 20), Stream(name="in", source="storage", target="hosts", size=1e7))
    plan = PLANS["replicas"]
    result = [
        jobs_together(
            [
                JobAt(name="x", job=which, plan=plan, nodes=(0, 2, 4, 6), streams=streams),
                JobAt(name="y", job=first, plan=plan, nodes=(1, 3, 5, 7)),
            ],
            system,
            storage=1e10,
        )
        for which in (first, two)
    ]
    assert result[0] == result[1]
