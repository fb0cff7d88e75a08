"""Jobs on one fabric: nothing where they share nothing, slower and named where they do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.background import Stream
from parsim.cluster.hardware import Network, System
from parsim.cost.job import Job
from parsim.errors import CatalogError, InputError
from parsim.plan import Plan
from parsim.sim.contention.jobs_together import JobsTogether, jobs_together
from parsim.sim.contention.placed_jobs import JobAt, PlacedJobs
from parsim.sim.contention.together_timeline import together_timeline

PLAN = Plan(dp_replicate=16, num_microbatches=1)
"""One ring over two nodes whose gradients are all on the spine at the end."""


def thin(job: Job, oversubscription: float = 8.0) -> Job:
    """Every node its own leaf group, below a thin spine."""
    network = job.system.network
    assert isinstance(network, Network)
    network = replace(network, nodes_per_leaf=2, oversubscription=oversubscription)
    return replace(job, cluster=replace(job.cluster, system=replace(job.system, network=network)))


def at(job: Job, *nodes: int, name: str = "a", plan: Plan = PLAN) -> JobAt:
    return JobAt(name=name, job=job, plan=plan, nodes=nodes)


def run(*jobs: JobAt, system: System | None = None) -> JobsTogether:
    return jobs_together(jobs, system or jobs[0].job.system)


def test_jobs_without_a_common_link_slow_each_other_by_exactly_nothing(job: Job) -> None:
    result = run(at(thin(job), 0, 1), at(thin(job), 2, 3, name="b"))
    assert result.shared_links == 0
    assert result.bottleneck is None
    assert [entry.slowdown for entry in result.jobs] == [0.0, 0.0]


def test_the_engine_says_so_too_where_it_runs(job: Job) -> None:
    """Steps beside each other on separate links, against the same steps alone."""
    jobs = (at(thin(job), 0, 1), at(thin(job), 2, 3, name="b", plan=Plan(pp=2, dp_replicate=8)))
    placed = PlacedJobs(jobs, jobs[0].job.system, (), None)
    ran = placed.run(placed.fabric([0, 1]), [0, 1], 3)
    for index in (0, 1):
        for step in ran[index].ended:
            assert step.seconds == pytest.approx(placed.alone(index), rel=1e-9)


def test_rings_that_cross_one_spine_halve_it(job: Job) -> None:
    slow = thin(job)
    result = run(at(slow, 0, 2), at(slow, 1, 3, name="b"))
    first, two = result.jobs
    assert first.slowdown == pytest.approx(two.slowdown, rel=1e-9)
    assert first.slowdown > 0.05
    assert result.bottleneck is not None
    assert result.bottleneck.link_class == "spine"
    assert 0.0 < result.bottleneck.saturated <= result.seconds
    assert first.steps == two.steps == 3


def test_a_wider_spine_is_shared_for_nothing(job: Job) -> None:
    narrow = run(at(thin(job), 0, 2), at(thin(job), 1, 3, name="b"))
    wide = run(at(thin(job, 1.0), 0, 2), at(thin(job, 1.0), 1, 3, name="b"))
    assert wide.jobs[0].slowdown < 1e-9 < narrow.jobs[0].slowdown


def test_a_short_job_repeats_beside_a_long_one(job: Job) -> None:
    slow = thin(job)
    long = Plan(dp_replicate=16, num_microbatches=6)
    result = run(at(slow, 0, 2), at(slow, 1, 3, name="b", plan=long))
    assert result.jobs[1].steps == 3
    assert result.jobs[0].steps > 3
    assert result.jobs[0].longest >= result.jobs[0].together >= result.jobs[0].alone


def test_who_is_named_first_does_not_matter(job: Job) -> None:
    slow = thin(job)
    other = Plan(dp_replicate=16, num_microbatches=4)
    first = run(at(slow, 0, 2), at(slow, 1, 3, name="b", plan=other))
    two = run(at(slow, 1, 3, name="b", plan=other), at(slow, 0, 2))
    for a, b in zip(first.jobs, reversed(two.jobs), strict=True):
        assert a.together == pytest.approx(b.together, rel=1e-9)


def test_halves_of_the_same_nodes_share_no_interface_on_a_rail(job: Job) -> None:
    """Four devices of each node: own interfaces; ring edges of a fat tree meet on the leaf."""
    half = replace(job.system, devices_per_node=4,
                   network=replace(thin(job).system.network, nics_per_node=4))  # type: ignore[type-var]  # fmt: skip
    halved = replace(job, cluster=replace(job.cluster, system=half))
    plan = Plan(dp_replicate=8, num_microbatches=1)
    result = run(
        at(halved, 0, 1, plan=plan), at(halved, 0, 1, name="b", plan=plan), system=job.system
    )
    assert all(entry.slowdown >= 0.0 for entry in result.jobs)
    with pytest.raises(InputError, match="needs 4 devices of node 0, and 0 of 8 are left"):
        run(*(at(halved, 0, 1, name=x, plan=plan) for x in "abc"), system=job.system)


def test_streams_of_a_neighbour_slow_a_job(job: Job) -> None:
    slow = thin(job)
    copies = (Stream(name="batches", source="storage", target="devices", size=3e8),)
    quiet = run(at(slow, 0, 2), at(slow, 1, 3, name="b"))
    loud = jobs_together(
        (at(slow, 0, 2), replace(at(slow, 1, 3, name="b"), streams=copies)),
        slow.system,
        storage=1e12,
    )
    assert loud.jobs[0].together > quiet.jobs[0].together


def test_the_timeline_holds_both_jobs(job: Job) -> None:
    slow = thin(job)
    jobs = (at(slow, 0, 2), at(slow, 1, 3, name="b"))
    timeline, links = together_timeline(jobs, slow.system)
    assert timeline.ranks == (0, 1)
    assert timeline.meta["rank_labels"] == {0: "a: rank 0", 1: "b: rank 0"}
    assert {"nvlink", "nic", "spine"} <= {curve.link_class for curve in links}
    assert max(max(curve.used) for curve in links) == pytest.approx(1.0)


def test_nodes_that_do_not_fit_are_refused(job: Job) -> None:
    with pytest.raises(InputError, match=r"a has cluster\.nodes=2, and 3 nodes are listed"):
        run(at(job, 0, 1, 2), at(job, 3, 4, name="b"))
    with pytest.raises(CatalogError, match="no part"):
        jobs_together([at(job, 0, 1)], job.system, failed=["nic:7.0"])
