"""Tier C with contention: tier B where nothing contends, slower where traffic meets."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster, Network
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import build_graph
from parsim.cost.job import Job
from parsim.errors import InputError, PlanError
from parsim.plan import Plan
from parsim.sim.contention.contention import contended_timeline, simulate_contention
from parsim.sim.simulate import simulate
from parsim.sim.traffic.mesh_groups import group_ranks
from tests.parsim.sim.conftest import PLANS, gpt_job
from tests.parsim.sim.wide_links import wide


def network_of(job: Job) -> Network:
    network = job.system.network
    assert network is not None
    return network


def with_network(job: Job, **changes: float | int) -> Job:
    network = replace(network_of(job), **changes)  # type: ignore[arg-type]
    return replace(job, cluster=replace(job.cluster, system=replace(job.system, network=network)))


def test_without_contention_the_step_is_tier_b(job: Job, plan: Plan) -> None:
    contended = simulate_contention(job, plan, graph=wide(job))
    assert contended.step_time == pytest.approx(simulate(job, plan).step_time, rel=1e-9)
    assert contended.alone == simulate(job, plan).step_time
    assert all(group.saturated == 0.0 for group in contended.classes)


def test_contention_never_makes_a_step_faster(job: Job) -> None:
    """And some plan is slower for its messages beside its buckets, or nothing was tested."""
    slowdowns = []
    for plan in PLANS.values():
        contended = simulate_contention(job, plan)
        slowdowns.append(contended.slowdown)
        for group in contended.classes:
            assert 0.0 <= group.saturated <= group.busy <= contended.step_time
    assert min(slowdowns) >= 1.0 - 1e-9
    assert max(slowdowns) > 1.0 + 1e-5


def test_less_bandwidth_is_never_faster(job: Job) -> None:
    """Links narrower than the closed forms know: of every class, and of the interfaces alone."""
    graph, plan = build_graph(job.cluster), PLANS["few micro-batches"]
    usual = simulate_contention(job, plan, graph=graph)
    half = simulate_contention(job, plan, graph=graph, whole=graph.scaled("nic", 1.0))
    assert half.step_time == usual.step_time
    slow = simulate_contention(job, plan, graph=graph.scaled("nic", 0.25), whole=graph)
    slower = simulate_contention(job, plan, graph=graph.scaled("nic", 0.1), whole=graph)
    assert usual.step_time < slow.step_time < slower.step_time
    assert slower.bottleneck is not None
    assert slower.bottleneck.link_class == "nic"


def test_a_failed_interface_slows_the_step(job: Job) -> None:
    """Routes move to another interface, which then carries two rings."""
    plan = PLANS["one rank a replica"]
    broken = replace(job, cluster=replace(job.cluster, failed=("nic:0.3",)))
    whole, result = simulate_contention(job, plan), simulate_contention(broken, plan)
    assert result.alone == whole.alone
    assert result.step_time > whole.step_time * 1.001
    assert result.bottleneck is not None
    assert result.bottleneck.saturated > 0.0


def test_an_oversubscribed_spine_slows_messages(job: Job) -> None:
    """Eight nodes in leaf groups of two; stages four nodes apart send over the spine."""
    plan = Plan(pp=2, tp=8, dp_replicate=4, num_microbatches=8)
    many = replace(job, cluster=replace(job.cluster, num_nodes=8))
    usual = simulate_contention(with_network(many, nodes_per_leaf=2), plan)
    thin = simulate_contention(with_network(many, nodes_per_leaf=2, oversubscription=8.0), plan)
    assert thin.slowdown > usual.slowdown + 1e-4
    assert thin.bottleneck is not None
    assert thin.bottleneck.link_class == "spine"


def test_tensor_groups_across_nodes_are_slow_and_say_where(job: Job) -> None:
    """Put 16 devices into nodes of 8 and of 4."""
    plan = Plan(tp=8, dp_replicate=2, num_microbatches=2)
    small = replace(
        job.system, devices_per_node=4, network=replace(network_of(job), nics_per_node=4)
    )
    spread = replace(job, cluster=replace(job.cluster, system=small, num_nodes=4))
    inside, across = simulate_contention(job, plan), simulate_contention(spread, plan)
    assert across.step_time > 1.15 * inside.step_time
    used = [{group.link_class: group.busy for group in entry.classes} for entry in (inside, across)]
    assert used[1]["nic"] > 2.0 * used[0]["nic"]


def test_a_plan_that_sends_nothing_has_no_bottleneck() -> None:
    system = load_catalog().system("cpu")
    job = replace(
        gpt_job(), cluster=Cluster(system=replace(system, devices_per_node=1), num_nodes=1)
    )
    contended = simulate_contention(job, Plan(num_microbatches=2, precision="fp32"))
    assert contended.bottleneck is None
    assert contended.classes == ()
    assert contended.slowdown == pytest.approx(1.0, rel=1e-9)


def test_the_json_is_that_of_the_contract(job: Job) -> None:
    document = simulate_contention(job, PLANS["1f1b"]).to_json()
    assert document.keys() == {"step_time_s", "slowdown", "bottleneck", "classes"}
    assert {"link", "class", "saturated_s"} <= document["bottleneck"].keys()
    assert all(entry.keys() == {"class", "busy_s", "saturated_s"} for entry in document["classes"])


def test_an_illegal_plan_is_refused(job: Job) -> None:
    with pytest.raises(PlanError):
        simulate_contention(job, Plan(tp=3, dp_replicate=5))


def test_the_same_input_gives_the_same_answer(job: Job) -> None:
    plan = PLANS["interleaved"]
    assert simulate_contention(job, plan) == simulate_contention(job, plan)


def test_which_nodes_hold_the_ranks_does_not_matter(job: Job) -> None:
    """Nodes in another order, on one leaf: the names of links change, nothing else."""
    plan = PLANS["zero 3"]
    swapped = (*range(8, 16), *range(8))
    other = replace(job, cluster=replace(job.cluster, placement=swapped))
    first, two = simulate_contention(job, plan), simulate_contention(other, plan)
    assert two.step_time == pytest.approx(first.step_time, rel=1e-12)
    assert [x.link_class for x in two.classes] == [x.link_class for x in first.classes]


def test_the_timeline_holds_all_actions_and_the_load_of_each_class(job: Job) -> None:
    plan = PLANS["interleaved"]
    result, (timeline, links) = simulate_contention(job, plan), contended_timeline(job, plan)
    actions = [span for span in timeline.spans if span.kind in ("F", "B")]
    assert len(actions) == 2 * plan.num_stages * plan.num_microbatches
    for link, two in pairwise(timeline.on(0, "compute")):
        assert link.end <= two.start + 1e-12
    assert {link.link_class for link in links} == {link.link_class for link in result.classes}
    for curve in links:
        assert list(curve.times) == sorted(curve.times)
        assert curve.used[-1] == 0.0
        assert 0.0 < max(curve.used) <= 1.0 + 1e-12


@pytest.mark.parametrize("spare", [0, 1])
def test_one_leaf_group_of_each_stage_stands_for_the_others(
    job: Job, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    """32 nodes in leaf groups of 4, all routes and those of 2 x 4 nodes: the same seconds."""
    plan = Plan(pp=2, tp=8 >> spare, dp_replicate=16 << spare, num_microbatches=6)
    many = replace(job, cluster=replace(job.cluster, num_nodes=32))
    many = with_network(many, nodes_per_leaf=4, oversubscription=4.0)
    whole = simulate_contention(many, plan)
    monkeypatch.setattr("parsim.sim.traffic.mesh_groups.FOLDED_FROM", 1)
    folded = simulate_contention(many, plan)
    assert whole.slowdown > 1.0 + 1e-5
    assert folded.step_time == whole.step_time
    assert folded.classes == whole.classes


def test_members_of_each_axis_partition_the_ranks() -> None:
    plan = Plan(pp=2, dp_replicate=2, dp_shard=2, cp=2, tp=2, zero_stage=1)
    for axes in (("tp",), ("cp",), ("dp_shard", "cp"), ("dp_replicate",)):
        groups = group_ranks(plan, axes)
        assert sorted(groups.reshape(-1).tolist()) == list(range(32))
        size = int(np.prod([plan.degree(axis) for axis in axes]))
        assert groups.shape == (2, 16 // size, size)
    assert group_ranks(plan, ("tp",))[1, 0].tolist() == [16, 17]
    assert group_ranks(plan, ("dp_shard", "cp"))[0, 0].tolist() == [0, 2, 4, 6]


def test_more_messages_than_can_be_simulated_are_refused(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLANS["one rank a replica"]
    simulate_contention(job, plan)
    monkeypatch.setattr("parsim.sim.events.step_run.MOST_PIECES", 3)
    with pytest.raises(InputError, match=r"tasks and pieces of tasks, more than the 3 that are"):
        simulate_contention(job, plan)
