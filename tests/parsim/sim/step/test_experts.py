"""Steps of mixtures: tiers agree, traffic of experts shares links, memory and search hold them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import build_graph
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.rules.violation import check_plan
from parsim.planner import search
from parsim.planner.bounds import plan_bounds
from parsim.sim.contention.contention import simulate_contention
from parsim.sim.simulate import simulate
from parsim.sim.step.priced_step import price_step
from parsim.sim.traffic.class_traffic import class_traffic
from parsim.sim.traffic.mesh_groups import group_ranks
from parsim.sim.traffic.step_traffic import Role
from tests.parsim.sim.wide_links import wide

SPEC = replace(model_spec("mixtral-8x7b"), num_layers=4, seq_len=2048)
JOB = Job(
    model=build_transformer(SPEC),
    cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=2),
    software=software("megatron-lm"),
)

PLANS = {
    "all of a node": Plan(dp_shard=16, zero_stage=1, ep=8, num_microbatches=2),
    "across nodes": Plan(dp_shard=16, zero_stage=1, ep=4, etp=4, num_microbatches=2),
    "tensor": Plan(
        tp=2, dp_shard=8, zero_stage=1, ep=8, sequence_parallel=True, num_microbatches=2
    ),
    "pipeline": Plan(pp=2, dp_replicate=8, ep=4, num_microbatches=4),
    "interleaved": Plan(
        pp=2, v=2, schedule="interleaved_1f1b", dp_shard=8, zero_stage=1, ep=8, num_microbatches=4
    ),
    "zero bubble": Plan(pp=2, schedule="zb_h1", dp_replicate=8, ep=8, num_microbatches=4),
    "sharded": Plan(dp_shard=16, zero_stage=3, ep=8, num_microbatches=2, recompute=Recompute.FULL),
    "context": Plan(cp=2, dp_shard=8, zero_stage=1, ep=8, num_microbatches=2),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_kind_of_plan_is_priced(name: str) -> None:
    plan = PLANS[name]
    check_plan(plan, JOB.model, JOB.cluster)
    prediction = simulate(JOB, plan)
    assert prediction.step_time == pytest.approx(sum(prediction.breakdown.values()), rel=1e-6)
    assert ("experts" in prediction.activations) == (plan.recompute is not Recompute.FULL)
    assert f"ep{plan.ep}" in plan.label()


@pytest.mark.parametrize("name", PLANS)
def test_without_contention_tier_c_is_tier_b(name: str) -> None:
    contended = simulate_contention(JOB, PLANS[name], graph=wide(JOB))
    assert contended.step_time == pytest.approx(contended.alone, rel=1e-6)


def test_the_experts_traffic_is_on_the_links() -> None:
    """Groups of a node use its links alone, wider ones the interfaces as well."""
    graph = build_graph(JOB.cluster)

    def classes(plan: Plan) -> set[str]:
        sent = class_traffic(price_step(JOB, plan), graph, graph, None)[Role("ep", 0)]
        return {graph.link_class[link] for link in sent.usage}

    assert classes(PLANS["all of a node"]) == {"nvlink"}
    assert classes(PLANS["across nodes"]) >= {"nic"}


@pytest.mark.parametrize("name", sorted(PLANS))
def test_the_searchs_bound_of_memory_is_never_above_the_peak(name: str) -> None:
    table = PlanTable.of([PLANS[name]])
    least = plan_bounds(JOB, table, LayerTable.of(JOB, table), np.zeros(1, dtype=np.int64)).peak
    assert float(least.max()) <= max(simulate(JOB, PLANS[name]).peak_allocated) * (1 + 1e-12)


def test_expert_groups_are_neighbours_of_a_stage() -> None:
    groups = group_ranks(Plan(pp=2, dp_shard=8, ep=4), ("ep",))
    assert groups.tolist() == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9, 10, 11], [12, 13, 14, 15]]]
    split = group_ranks(Plan(dp_shard=8, ep=2, etp=4), ("ep",))
    assert split.tolist() == [[[0, 4], [1, 5], [2, 6], [3, 7]]]


def test_a_search_tries_each_degree_that_divides_experts_and_ranks() -> None:
    space = PlanSpace(
        global_batch_size=32,
        tp=(1,),
        pp=(1, 2),
        microbatch_size=(1,),
        zero_stage=(1,),
        recompute=(Recompute.NONE,),
        schedule=("1f1b",),
        sequence_parallel=(False,),
    )
    result = search(JOB, space, top=100)
    degrees = {(plan.plan.pp, plan.plan.ep) for plan in result.plans}
    assert degrees == {(pp, ep) for pp in (1, 2) for ep in (1, 2, 4, 8)}
    for plan in result.plans:
        alone = simulate(JOB, plan.plan)
        assert plan.step_time == pytest.approx(alone.step_time, rel=1e-12)
        assert plan.peak_allocated == pytest.approx(max(alone.peak_allocated), rel=1e-12)


def test_a_table_of_plans_prices_each_as_if_alone() -> None:
    plans = [Plan(dp_shard=16, zero_stage=1, ep=ep, num_microbatches=2) for ep in (1, 2, 8)]
    table = PlanTable.of(plans)
    assert [table.plan(row) for row in range(3)] == plans
    assert table.expert_replicas.tolist() == [16, 8, 2]
    assert table.expert_shards.tolist() == [16, 8, 2]


def test_sharing_experts_out_takes_memory_off_a_rank() -> None:
    peaks = [
        max(simulate(JOB, replace(PLANS["all of a node"], ep=ep)).peak_allocated)
        for ep in (1, 2, 4, 8)
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > 1.5 * peaks[-1]


def test_tokens_of_experts_have_a_lane_of_their_own() -> None:
    """In forward and backward as long as they are priced; again where layers are recomputed."""
    plan = Plan(tp=2, dp_shard=8, zero_stage=1, ep=8, sequence_parallel=True, num_microbatches=2)
    # a pass that waits for its host is longer as a whole, its exchanges too
    eager = replace(JOB.software, launch_cost=4e-6, expert_launch=4e-6)
    cluster = Cluster(system=JOB.cluster.system, num_nodes=2)
    job = replace(JOB, cluster=cluster, software=eager)
    lanes = {}
    for recompute in (Recompute.NONE, Recompute.FULL):
        timeline = simulate(job, replace(plan, recompute=recompute), timeline=True).timeline
        assert timeline is not None
        inside = sum(s.exposed for s in timeline.spans if s.kind in ("F", "B"))
        parts = {stream: list(timeline.on(0, stream)) for stream in ("tp", "ep", "dp")}
        named = [span for spans in parts.values() for span in spans if span.kind in KINDS]
        assert sum(span.exposed for span in named) == pytest.approx(inside)
        assert {span.kind for span in parts["ep"]} == {"ALL_TO_ALL"}
        lanes[recompute] = sum(span.duration for span in parts["ep"])
    assert lanes[Recompute.FULL] == pytest.approx(1.5 * lanes[Recompute.NONE], rel=0.01)
    dense = simulate(job, replace(plan, ep=1), timeline=True).timeline
    assert dense is not None
    assert not list(dense.on(0, "ep"))


KINDS = ("EXCHANGE", "ALL_TO_ALL", "SHARD")
"""What is drawn inside actions."""
