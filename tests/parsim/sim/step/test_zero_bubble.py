"""Zero-bubble schedules by name: what they cost, keep, and how far the tiers agree on them."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.plan.names import SPLIT, TWO_WAY, V_SHAPED
from parsim.planner.search import search
from parsim.schedule import Kind, build_schedule, schedule_of
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.action_times import action_times, with_action_times
from parsim.sim.step.kept_bytes import kept_for_weights
from parsim.sim.step.schedule_costs import SplitCosts, action_seconds
from tests.parsim.sim.cases import Case, random_costs
from tests.parsim.sim.recurrence.planes import run_planes
from tests.parsim.sim.tiers import both_tiers, finish_events, finish_times

NAMES = sorted(SPLIT)
BASE = Plan(pp=4, tp=4, num_microbatches=12, overlap_p2p=True)


def named(name: str, base: Plan = BASE) -> Plan:
    return replace(base, schedule=name, v=2 if name in V_SHAPED else 1)


@pytest.mark.parametrize("name", NAMES)
def test_all_engines_are_bit_equal(name: str) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        pp, m, v = rng.randint(2, 5), rng.randint(1, 12), 2 if name in V_SHAPED else 1
        pp, m = (2 * (pp // 2), 2 * m) if name in TWO_WAY else (pp, m)
        schedule = build_schedule(name, pp=pp, num_microbatches=m, v=v)
        case = Case(schedule, random_costs(schedule, rng))
        graph, result, end, recorded = both_tiers(case)
        assert finish_times(graph, result) == finish_events(case, recorded), seed
        assert float(end.step_time[0]) == recorded.step_time, seed
        planes = run_planes(schedule, case.costs, np.ones((schedule.pp, 2, 2)))
        assert planes.step_time == recorded.step_time, seed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stack", ["megatron-2021", "executor-cuda"])
def test_a_prediction_adds_up(job: Job, name: str, stack: str) -> None:
    plan = named(name)
    prediction = simulate(
        replace(job, software=software(stack)), plan, tier="events", timeline=True
    )  # refuses where the tiers differ
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-12)
    assert sum(prediction.memory.values()) == pytest.approx(
        max(prediction.peak_allocated), rel=1e-12
    )
    assert prediction.timeline is not None
    for rank, curve in enumerate(prediction.timeline.memory):
        assert max(curve.bytes) == pytest.approx(prediction.peak_allocated[rank], rel=1e-9)
        assert curve.bytes[-1] == pytest.approx(curve.static, rel=1e-9)
    drawn = [span for span in prediction.timeline.spans if span.kind in ("F", "B", "I", "W")]
    assert len(drawn) == sum(map(len, schedule_of(plan).ranks))
    whole = sum(span.kind == "B" for span in drawn)
    assert len(drawn) + whole == 3 * 12 * plan.num_stages


def test_they_are_faster_than_1f1b_as_the_papers_say(job: Job) -> None:
    span = {
        name: simulate(job, named(name)).device_span
        for name in ("1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_v", "v_half")
    }
    assert span["1f1b"] > span["v_half"] > span["zb_h1"] >= span["zb_1p"]
    assert span["zb_h1"] > span["zb_h2"] >= span["zb_2p"]
    assert span["zb_h1"] > span["zb_v"]


def test_memory_follows_the_papers(job: Job) -> None:
    result = {name: simulate(job, named(name)) for name in ("1f1b", *NAMES)}
    high = {name: each.memory_by_rank[0]["activations"] for name, each in result.items()}
    assert high["zb_h1"] == high["1f1b"]  # rank 0: pp micro-batches, none waiting for its W
    assert high["1f1b"] < high["zb_h2"] < 2.0 * high["1f1b"]
    assert high["v_min"] < high["v_half"] < 0.8 * high["1f1b"]
    last = {name: each.memory_by_rank[-1]["activations"] for name, each in result.items()}
    assert last["1f1b"] < last["zb_h1"]  # those that wait


def test_between_i_and_w_a_product_keeps_input_and_output_gradient(job: Job) -> None:
    """32 s b h a layer of GPT without tensor parallelism (arXiv 2401.10241, table 1)."""
    plan = Plan(pp=4, dp_replicate=4, num_microbatches=4, schedule="zb_h1", microbatch_size=2)
    table = PlanTable.of([plan])
    kept = kept_for_weights(job, table)[:, 0]
    model = job.model
    assert kept.tolist() == [6 * 32.0 * 2 * model.border] * 4


def test_torch_takes_the_whole_of_stage_0_as_w(job: Job) -> None:
    plan = named("zb_h1")
    theirs = evaluate(replace(job, software=software("executor-cuda")), plan).step.costs
    ours = evaluate(job, plan).step.costs
    assert action_seconds(theirs)[Kind.W][0] == theirs.backward[0]
    share = action_seconds(ours)[Kind.W] / ours.backward
    assert isinstance(ours, SplitCosts)
    assert 0.15 < share[0, 0] < 0.6


@pytest.mark.parametrize("name", ["zb_1p", "zb_2p", "zb_auto", "zb_v"])
def test_searched_for_its_own_times(job: Job, name: str) -> None:
    plan = with_action_times(job, named(name))
    assert plan.action_times == action_times(job, named(name))
    forward, inputs, weights, message, kept = plan.action_times
    assert forward == 1.0
    assert 1.0 < inputs + weights < 3.0
    assert 0.0 < message < 0.5
    assert 0.2 < kept < 1.0
    searched = simulate(job, plan, tier="events")
    assert searched.device_span <= simulate(job, named(name)).device_span * 1.02
    for other in (BASE, named("zb_h1"), named("v_half")):
        assert with_action_times(job, other) == other


def test_a_search_tries_them_where_it_names_them(job: Job) -> None:
    names = ("1f1b", "zb_h1", "zb_v")
    space = PlanSpace(
        global_batch_size=32, schedule=names, tp=(4,), pp=(4,), microbatch_size=(1,),
        common=Plan(overlap_p2p=True),
    )  # fmt: skip
    result = search(job, space, top=50)
    assert {(entry.plan.schedule, entry.plan.v) for entry in result.plans} == {
        ("1f1b", 1), ("zb_h1", 1), ("zb_v", 2),
    }  # fmt: skip
    for entry in result.plans[:3]:
        exact = simulate(job, entry.plan)
        assert exact.step_time == pytest.approx(entry.step_time, rel=1e-12)
        assert max(exact.peak_allocated) == pytest.approx(entry.peak_allocated, rel=1e-12)
