"""Shared links of nodes that differ: tier B where nothing contends, one kind to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.groups import mixed_cluster
from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.cluster.topology import build_graph
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.sim.contention.contention import contended_timeline, simulate_contention
from parsim.sim.recurrence.evaluate import evaluate
from tests.parsim.sim.mixed_clusters import (
    BY_REPLICA,
    ONE,
    PLANS,
    cluster_of,
    fast_and_slow,
    job_on,
    narrower,
    node,
)
from tests.parsim.sim.wide_links import wide

APART = ("zero2", "zero3")
"""Plans whose replicas of both kinds exchange shards in every pass."""


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(fast_and_slow())


def paired(name: str) -> System:
    """A node with an interface for each of its two devices."""
    system = node(name)
    assert system.network is not None
    return replace(system, network=replace(system.network, nics_per_node=2))


def groups_of(job: Job) -> dict[str, NodeGroup]:
    return {group.name: group for group in job.cluster.groups}


@pytest.mark.parametrize("name", [name for name in PLANS if name not in APART])
def test_without_contention_the_step_is_tier_b(job: Job, name: str) -> None:
    plan = PLANS[name]
    contended = simulate_contention(job, plan, graph=wide(job, plan.node_order))
    closed = evaluate(job, plan).step_time
    assert contended.step_time == pytest.approx(closed, rel=1e-9)
    assert contended.alone == closed
    assert all(group.saturated == 0.0 for group in contended.classes)


@pytest.mark.parametrize("name", [name for name in PLANS if "uneven" not in name])
def test_equal_groups_are_one_kind_to_the_bit(name: str) -> None:
    system, plan = node("dgx-h100"), PLANS[name]
    first = job_on(Cluster(system=system, num_nodes=4))
    two = job_on(cluster_of(a=(system, 3), b=(system, 1)))
    text, same = (simulate_contention(which, plan) for which in (first, two))
    assert same == text
    assert contended_timeline(two, plan)[0].spans == contended_timeline(first, plan)[0].spans


def test_contention_never_makes_a_step_faster(job: Job) -> None:
    """And some plan is slower, or nothing was tested."""
    slowdowns = [
        simulate_contention(job, plan).slowdown for name, plan in PLANS.items() if name not in APART
    ]
    assert min(slowdowns) >= 1.0 - 1e-9
    assert max(slowdowns) > 1.0 + 1e-4


def test_uneven_batches_of_equal_nodes_share_links_too() -> None:
    """Few micro-batches end early and wait for the others' buckets."""
    job = job_on(Cluster(system=node("dgx-h100"), num_nodes=4))
    plan = PLANS["uneven"]
    contended = simulate_contention(job, plan)
    assert contended.alone == evaluate(job, plan).step_time
    assert contended.slowdown >= 1.0 - 1e-9
    idle = simulate_contention(job, plan, graph=wide(job, plan.node_order))
    assert idle.step_time == pytest.approx(contended.alone, rel=1e-9)


@pytest.mark.parametrize("name", APART)
def test_shards_across_kinds_in_every_pass_are_refused(job: Job, name: str) -> None:
    with pytest.raises(InputError, match="exchange shards within every pass"):
        simulate_contention(job, PLANS[name])


@pytest.mark.parametrize("name", ["stages", "replicas", "uneven", "hsdp"])
def test_the_order_in_which_groups_are_written_does_not_matter(job: Job, name: str) -> None:
    """Groups the other way around, and a plan that names the first order, are the same nodes."""
    groups, plan = groups_of(job), PLANS[name]
    turned = job_on(mixed_cluster([groups["slow"], groups["fast"]]))
    first = simulate_contention(job, plan)
    two = simulate_contention(turned, replace(plan, node_order=("fast", "slow")))
    assert two.step_time == pytest.approx(first.step_time, rel=1e-12)
    assert two.slowdown == pytest.approx(first.slowdown, rel=1e-12)


@pytest.mark.parametrize("name", ["stages", "replicas", "tp"])
def test_a_placement_of_whole_nodes_is_an_order_of_them(job: Job, name: str) -> None:
    """Nodes in the order slow, fast, fast, slow, by a map of ranks and by names."""
    plan, placement = PLANS[name], (4, 5, 0, 1, 2, 3, 6, 7)
    placed = replace(job, cluster=replace(job.cluster, placement=placement))
    ordered = replace(plan, node_order=("slow", "fast", "fast", "slow"))
    first, two = simulate_contention(job, ordered), simulate_contention(placed, plan)
    assert two.alone == first.alone
    assert two.step_time == pytest.approx(first.step_time, rel=1e-12)


def test_a_slow_groups_interfaces_hold_the_step_back(job: Job) -> None:
    """Narrower than the closed forms know; the link is one of the slow nodes, 2 and 3."""
    graph = build_graph(job.cluster)
    times = []
    for factor in (1.0, 0.25, 0.1):
        thin = graph
        for part in graph.nodes:
            if part.startswith(("nic:2.", "nic:3.")):
                thin = thin.scaled(part, factor)
        contended = simulate_contention(job, PLANS["no pipeline"], graph=thin, whole=graph)
        times.append(contended.step_time)
    assert times[0] < times[1] < times[2]
    assert contended.bottleneck is not None
    assert any(part in contended.bottleneck.link for part in ("nic:2.", "nic:3."))


def test_what_if_the_slow_group_had_slower_interfaces() -> None:
    fast, slow = node("dgx-h100"), node("dgx-a100")
    jobs = [job_on(cluster_of(fast=(fast, 2), slow=(narrower(slow, x), 2))) for x in (1, 8)]
    first, two = (simulate_contention(which, BY_REPLICA) for which in jobs)
    assert two.step_time > first.step_time


def test_a_failed_interface_slows_the_step() -> None:
    """Both rings of node 3 then go by the rail that is left, and so do its neighbours' to it."""
    plan = PLANS["no pipeline"]
    job = job_on(cluster_of(fast=(paired("dgx-h100"), 2), slow=(paired("dgx-a100"), 2)))
    broken = replace(job, cluster=replace(job.cluster, failed=("nic:3.0",)))
    whole, result = simulate_contention(job, plan), simulate_contention(broken, plan)
    assert result.alone == whole.alone
    assert result.step_time > whole.step_time * 1.001
    assert result.bottleneck is not None
    assert "leaf:0.1" in result.bottleneck.link


def test_a_slow_rank_holds_back_its_own_class_until_gradients_meet(job: Job) -> None:
    """A fast replica half as fast again is still no slower than the slow ones: nothing is lost."""
    usual = simulate_contention(job, BY_REPLICA)
    fast = simulate_contention(job, BY_REPLICA, slow={0: 1.05})
    slow = simulate_contention(job, BY_REPLICA, slow={7: 1.05})
    assert fast.step_time == pytest.approx(usual.step_time, rel=1e-3)
    assert slow.step_time > usual.step_time * 1.02


def test_the_timeline_has_a_lane_for_each_rank_of_each_class(job: Job) -> None:
    plan = PLANS["uneven"]
    timeline, links = contended_timeline(job, plan)
    labels = timeline.meta["rank_labels"]
    assert isinstance(labels, dict)
    classes = len(evaluate(job, plan).step.classes.first)
    assert {str(span.rank) for span in timeline.spans} == labels.keys()
    assert len(labels) == classes * plan.pp
    forwards = [sum(s.kind == "F" and s.rank == c * plan.pp for s in timeline.spans)
                for c in range(classes)]  # fmt: skip
    assert sorted(forwards) == sorted(plan.microbatches)
    assert {curve.link_class for curve in links} >= {"nic", "pcie"}
    assert all(np.diff(curve.times).min() >= 0.0 for curve in links)


def test_more_room_on_shared_links_is_never_slower(job: Job) -> None:
    graph, usual = build_graph(job.cluster), simulate_contention(job, ONE)
    more = simulate_contention(job, ONE, graph=graph.scaled("nic", 2.0), whole=graph)
    assert more.step_time <= usual.step_time * (1.0 + 1e-9)
