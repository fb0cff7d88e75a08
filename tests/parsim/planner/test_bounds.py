"""Bounds without a schedule: never above the step and the peak, and near them where they matter."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.arrays import Ints
from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import plan_cut
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.space import Between
from parsim.planner.bounds import PlanBounds, growth, plan_bounds, shared_bound
from parsim.planner.equal.exact import compiled_of
from parsim.planner.equal.ways import longest_ways
from parsim.planner.space import Enumeration, enumerate_plans
from parsim.schedule import CHUNKED, TWO_WAY, V_SHAPED, build_schedule
from parsim.schedule.inflight import inflight_counts, least_in_flight, split_counts
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import evaluate
from parsim.space.axes import SETTINGS

MULTI_QUERY = "llama3-8b with one key-value head"
STACKS = ("generic", "megatron-2022", "torchtitan", "executor-cpu", "megatron-te-2025")
MODELS = ("gpt2", "llama3-8b", "mixtral-8x7b", MULTI_QUERY)


@cache
def case(
    stack: str, model: str, layers: int, nodes: int, overlap: bool, varied: str = ""
) -> tuple[Job, Enumeration]:
    """A short model on few devices, and all its legal plans, with every value of a setting."""
    named = model_spec(model.split(" ")[0])
    heads = 1 if model == MULTI_QUERY else named.num_key_value_heads
    spec = replace(named, num_layers=layers, seq_len=1024, num_key_value_heads=heads)
    node = replace(load_catalog().system("dgx-a100"), devices_per_node=4)
    cluster = Cluster(system=node, num_nodes=nodes)
    job = Job(model=build_transformer(spec), cluster=cluster, software=software(stack))
    common = Plan(overlap_p2p=overlap, overlap_grad_reduce=overlap, bucket_bytes=4e6)
    space = PlanSpace(
        global_batch_size=16,
        schedule=SCHEDULE_NAMES,
        offload_layers=Between(),
        recompute_layers=Between(),
        common=common,
    )
    if varied:
        every = {varied: SETTINGS[varied].every(job), "dp_shard": Between()}
        space = replace(space.with_axes(every), schedule=SCHEDULE_NAMES[::2])
    return job, enumerate_plans(job, space)


def bounds_of(job: Job, table: PlanTable) -> PlanBounds:
    """Bounds of all plans of a table."""
    return plan_bounds(job, table, LayerTable.of(job, table), np.arange(len(table)))


def along_ways(job: Job, table: PlanTable, bounds: PlanBounds) -> float:
    """Seconds of the only plan of a table along the longest ways through its schedule."""
    plan = table.plan(0)
    if plan.pp == 1:
        return 0.0
    cut = plan_cut(plan, job.model.num_layers)
    ways = longest_ways(compiled_of(plan), cut, blocking=not plan.overlap_p2p)
    return float(bounds.seconds.along(np.zeros(1, dtype=int), ways)[0]) if len(ways) else 0.0


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    stack=st.sampled_from(STACKS),
    model=st.sampled_from(MODELS),
    layers=st.sampled_from([5, 6]),
    nodes=st.sampled_from([1, 2]),
    overlap=st.booleans(),
    varied=st.sampled_from(sorted(SETTINGS)),
    places=st.lists(st.floats(0.0, 0.999999), min_size=8, max_size=8),
)
def test_no_plan_is_faster_or_smaller_than_its_bounds(
    stack: str,
    model: str,
    layers: int,
    nodes: int,
    overlap: bool,
    varied: str,
    places: list[float],
) -> None:
    job, result = case(stack, model, layers, nodes, overlap, varied)
    if result.table is None:
        return
    for share in places:
        row = np.array([int(share * len(result.table))])
        table = result.table.take(row)
        layers_of = LayerTable.of(job, table)
        bounds = bounds_of(job, table)
        shared = shared_bound([layers_of], table, job.model, [job.cluster.num_devices])
        exact = evaluate(job, table.plan(0))
        assert bounds.step[0] <= exact.step_time
        assert along_ways(job, table, bounds) <= exact.step_time
        assert shared[0] * growth(job.cluster) <= exact.step_time
        assert bounds.peak[0] <= exact.peak.max()


def test_bounds_are_tight_where_a_pipeline_is_even() -> None:
    """Where the schedule is the closed form's, most steps are within 2 % of their bound."""
    job, result = case("megatron-te-2025", "llama3-8b", 6, 2, True)
    assert result.table is not None
    rows = np.arange(0, len(result.table), 293)
    slack = []
    for row in rows:
        table = result.table.take(rows[rows == row])
        bound = bounds_of(job, table).step[0]
        slack.append(evaluate(job, table.plan(0), memory=False).step_time / bound - 1.0)
    assert float(np.median(slack)) < 0.02


@pytest.mark.parametrize("name", ["zb_h1", "zb_h2", "zb_1p", "zb_v", "v_min", "dualpipe_v"])
def test_bounds_know_the_way_back_of_a_pipeline_that_hardly_fills(name: str) -> None:
    """A rank's own work is the smaller part of a step of two micro-batches."""
    job, _ = case("megatron-te-2025", "llama3-8b", 6, 1, True)
    v = 2 if name in V_SHAPED else 1
    plan = Plan(pp=2 if v == 2 else 4, microbatch_size=1, num_microbatches=2, schedule=name, v=v)
    plan = replace(plan, tp=4 // plan.pp)
    bound = bounds_of(job, PlanTable.of([plan])).step[0]
    slack = evaluate(job, plan, memory=False).step_time / bound
    assert 1.0 <= slack < (1.3 if v == 2 else 1.05)


def count(number: int) -> Ints:
    return np.array([number])


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
@pytest.mark.parametrize("pp", [2, 3, 4, 6, 8])
def test_no_schedule_holds_less_than_the_least_in_flight(name: str, pp: int) -> None:
    chunked = (2, 4) if name == "hanayo" else (2, 3, 5)
    for v in chunked if name in CHUNKED else (2,) if name in V_SHAPED else (1,):
        for m in (pp, 3 * pp) if name in CHUNKED else (1, 2, pp, pp + 1, 2 * pp, 3 * pp + 1):
            if name in TWO_WAY and (pp % 2 or m % 2):
                continue
            schedule = build_schedule(name, pp=pp, num_microbatches=m, v=v)
            chunks = v * schedule.copies
            for rank, moments in enumerate(split_counts(schedule)):
                first, last, total = least_in_flight(name, *map(count, (pp, v, rank, m)))
                assert any(
                    moment[0] >= first
                    and moment[chunks - 1] >= last
                    and sum(moment[:chunks]) >= total
                    for moment in moments
                )


@pytest.mark.parametrize("name", ["zb_v", "v_half", "looped_bfs"])
def test_the_least_in_flight_of_folded_schedules_is_exact(name: str) -> None:
    for pp, m in ((2, 1), (4, 4), (4, 5), (6, 20)):
        schedule = build_schedule(name, pp=pp, num_microbatches=m, v=2)
        ranks = np.arange(pp)
        ones = np.ones_like(ranks)
        flying = least_in_flight(name, pp * ones, 2 * ones, ranks, m * ones)
        most = [max(sum(moment[:2]) for moment in moments) for moments in split_counts(schedule)]
        assert flying.total.tolist() == most


def test_the_least_in_flight_of_dualpipe_is_exact() -> None:
    for pp, m in ((2, 2), (4, 6), (6, 6), (8, 10), (8, 32)):
        moments = split_counts(build_schedule("dualpipe", pp=pp, num_microbatches=m))
        ranks = np.arange(pp)
        flying = least_in_flight("dualpipe", count(pp), count(1), ranks, count(m)).total
        assert flying.tolist() == [max(sum(moment[:2]) for moment in each) for each in moments]


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b"])
def test_the_least_in_flight_is_exact_for_one_chunk(name: str) -> None:
    for pp, m in ((2, 1), (4, 2), (4, 4), (3, 11)):
        schedule = build_schedule(name, pp=pp, num_microbatches=m)
        counted = [max(moments)[0] for moments in inflight_counts(schedule)]
        ranks = np.arange(pp)
        first = np.ones_like(ranks)
        flying = least_in_flight(name, pp * first, first, ranks, m * first)
        assert flying.total.tolist() == counted


@pytest.mark.parametrize("stack", ["generic", "torchtitan", "megatron-te-2025"])
@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("schedule", ["interleaved_1f1b", "1f1b"])
def test_shards_that_no_compute_hides_are_in_the_bound(
    stack: str, zero_stage: int, schedule: str
) -> None:
    """Chunks of two layers hide one gather of two, so that half of the collectives show."""
    spec = replace(model_spec("llama3-8b"), num_layers=16)
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=2)
    job = Job(model=build_transformer(spec), cluster=cluster, software=software(stack))
    chunks = 4 if schedule == "interleaved_1f1b" else 1
    plan = Plan(
        tp=1,
        pp=2,
        dp_shard=8,
        v=chunks,
        zero_stage=zero_stage,
        schedule=schedule,
        microbatch_size=1,
        num_microbatches=32,
    )
    table = PlanTable.of([plan])
    exact = evaluate(job, plan).step_time
    assert 0.97 * exact <= float(bounds_of(job, table).step[0]) <= exact


@pytest.mark.parametrize("tokens", [512, 16384])
@pytest.mark.parametrize("count", [1, 2])
def test_bounds_know_that_a_first_backward_meets_no_gradients(tokens: int, count: int) -> None:
    job, _ = case("torchtitan", "llama3-8b", 4, 1, False)
    spec = replace(model_spec("llama3-8b"), num_layers=4, seq_len=tokens)
    job = replace(job, model=build_transformer(spec))
    plans = [
        Plan(dp_shard=shard, zero_stage=stage, dp_replicate=4 // shard, num_microbatches=count)
        for shard, stage in ((1, 0), (2, 3), (4, 2), (4, 3))
    ]
    table = PlanTable.of(plans)
    least = bounds_of(job, table).peak
    exact = np.array([max(simulate(job, plan).peak_allocated) for plan in plans])
    assert (least <= exact).all()
    assert least == pytest.approx(exact, rel=0.35)
