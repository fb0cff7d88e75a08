"""Schedules of the user's own: predicted like named ones, and the tiers equal on any."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.plan import Plan, Recompute
from parsim.schedule import Kind, schedule_of
from parsim.schedule.lowering import lower
from parsim.sim import simulate
from parsim.strategy.synchronous import LATE
from tests.executor.random_schedules import random_schedule
from tests.parsim.sim.cases import Case, random_costs
from tests.parsim.sim.conftest import PLANS
from tests.parsim.sim.recurrence.planes import run_planes
from tests.parsim.sim.step.planned import with_actions
from tests.parsim.sim.tiers import both_tiers, finish_events, finish_times, reduced_events

PIPELINES = [name for name, plan in PLANS.items() if plan.pp > 1]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("lowered", [False, True])
def test_a_named_schedule_from_a_file_is_bit_equal(job: Job, name: str, lowered: bool) -> None:
    plan = PLANS[name]
    schedule = schedule_of(plan)
    file = with_actions(
        plan, lower(schedule, unshard=True, reduce_grad=True) if lowered else schedule
    )
    named, read = simulate(job, plan, timeline=True), simulate(job, file, timeline=True)
    assert named.timeline is not None
    assert read.timeline is not None
    meta = {**read.timeline.meta, "plan": plan.label()}
    assert replace(read.timeline, meta=meta) == named.timeline
    assert replace(read, plan=plan, timeline=None) == replace(named, timeline=None)


@pytest.mark.parametrize("hundred", range(3))
def test_all_engines_are_bit_equal(hundred: int) -> None:
    """Tier B, tier C and the planes of ranks, on exact sums."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        rng = random.Random(seed)
        schedule = random_schedule(seed, pp=rng.randint(2, 5))
        case = Case(schedule, random_costs(schedule, rng))
        graph, result, end, recorded = both_tiers(case)
        assert finish_times(graph, result) == finish_events(case, recorded), seed
        assert result.clock[:, 0].tolist() == recorded.pipelines[0].clock, seed
        assert end.times[LATE].ready[:, 0].tolist() == reduced_events(recorded), seed
        assert float(end.step_time[0]) == recorded.step_time, seed
        planes = run_planes(schedule, case.costs, np.ones((schedule.pp, 2, 2)))
        assert planes.step_time == recorded.step_time, seed


def random_plans() -> list[Plan]:
    """Random schedules of 2, 4 and 8 ranks on 16 devices, all that a plan can express."""
    plans = []
    for seed in range(200):
        rng = random.Random(seed)
        schedule = random_schedule(seed, pp=rng.choice([2, 4, 8]))
        if schedule.num_stages % schedule.pp:
            continue
        dp = 16 // schedule.pp
        zero = rng.choice([0, 1, 2])
        base = Plan(
            dp_shard=dp if zero else 1, dp_replicate=1 if zero else dp, zero_stage=zero,
            overlap_p2p=rng.random() < 0.5, overlap_grad_reduce=rng.random() < 0.5,
            recompute=Recompute(rng.choice([0, 1, 2])), bucket_bytes=5e7,
        )  # fmt: skip
        plans.append(with_actions(base, schedule))
    return plans


def test_random_plans_are_many_and_of_all_kinds() -> None:
    plans = random_plans()
    assert len(plans) > 30
    assert {plan.v for plan in plans} == {1, 2}
    schedules = [schedule_of(plan) for plan in plans]
    assert any(schedule.v > schedule.num_stages // schedule.pp for schedule in schedules)
    assert {a.kind for s in schedules for a in chain(*s.ranks)} == set(list(Kind)[:4])


@pytest.mark.parametrize("plan", random_plans(), ids=lambda plan: f"p{plan.pp}v{plan.v}")
def test_a_prediction_of_any_legal_schedule(job: Job, plan: Plan) -> None:
    prediction = simulate(job, plan, tier="events", timeline=True)  # refuses where the tiers differ
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-12)
    assert sum(prediction.memory.values()) == pytest.approx(
        max(prediction.peak_allocated), rel=1e-12
    )
    assert prediction.timeline is not None
    for rank, curve in enumerate(prediction.timeline.memory):
        assert max(curve.bytes) == pytest.approx(prediction.peak_allocated[rank], rel=1e-9)
    spans = [span for span in prediction.timeline.spans if span.kind in ("F", "B", "I", "W")]
    assert len(spans) == sum(map(len, schedule_of(plan).ranks))
    assert max(span.end for span in spans) == pytest.approx(prediction.pipeline_time, rel=1e-12)
