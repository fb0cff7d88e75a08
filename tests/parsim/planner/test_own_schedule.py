"""A search that keeps a schedule of the user's own: its pp, v and number of micro-batches."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from parsim.cost.job import Job
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace
from parsim.plan.rules.violation import violation
from parsim.planner import search
from parsim.planner.nearest_miss import shortage
from parsim.schedule import Schedule, build_schedule
from parsim.sim import simulate
from tests.parsim.planner.conftest import with_memory

VEE = Schedule.from_csv("0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n")
"""Stages 0 and 3 on rank 0, 1 and 2 on rank 1; the last one has the logits."""


def kept(schedule: Schedule) -> PlanSpace:
    """The space of all plans with a schedule."""
    v = schedule.num_stages // schedule.pp
    common = Plan(
        pp=schedule.pp,
        v=v,
        num_microbatches=schedule.num_microbatches,
        schedule="own.csv",
        actions=schedule.to_csv(),
    )
    return PlanSpace(global_batch_size=32, common=common, memory_margin=0.0)


@pytest.mark.parametrize("schedule", [VEE, build_schedule("gpipe", pp=2, num_microbatches=4)])
def test_every_plan_has_it_and_is_what_it_is_alone(job: Job, schedule: Schedule) -> None:
    result = search(job, kept(schedule), top=10**6)
    assert result.counts["evaluated"] == len(result.plans) > 10
    for entry in result.plans:
        plan = entry.plan
        v = schedule.num_stages // schedule.pp
        assert (plan.schedule, plan.pp, plan.v) == ("own.csv", schedule.pp, v)
        assert plan.num_microbatches == schedule.num_microbatches
        assert plan.global_batch_size == 32
        alone = simulate(job, plan)
        assert entry.step_time == pytest.approx(alone.step_time, rel=1e-12)
        assert entry.bubble_fraction == pytest.approx(alone.bubble_fraction, abs=1e-12)
        assert entry.peak_allocated == pytest.approx(max(alone.peak_allocated), rel=1e-12)


def test_a_named_schedule_from_a_file_is_searched_alike(job: Job) -> None:
    gpipe = build_schedule("gpipe", pp=4, num_microbatches=4)
    result = search(job, kept(gpipe), top=10**6).plans
    space = PlanSpace(global_batch_size=32, pp=(4,), schedule=("gpipe",), memory_margin=0.0)
    named = search(job, space, top=10**6).plans
    same = [entry for entry in named if entry.plan.num_microbatches == 4]
    assert [entry.step_time for entry in result] == [entry.step_time for entry in same]
    assert [entry.peak_allocated for entry in result] == [entry.peak_allocated for entry in same]


def test_nothing_that_fits_is_thrown_away_for_where_its_stages_are(job: Job) -> None:
    """The bound that spares the schedule assumes stages in a loop; here both ends are on rank 0."""
    everything = search(job, kept(VEE), top=10**6).plans
    peaks = sorted(entry.peak_allocated for entry in everything)
    tight = (peaks[0] + peaks[1]) / 2 if peaks[0] < peaks[1] else peaks[0]
    fitting = search(with_memory(job, tight), kept(VEE), top=10**6).plans
    assert len(fitting) == sum(peak <= tight for peak in peaks)


def test_the_advice_keeps_what_the_schedule_fixes(job: Job) -> None:
    plan = search(job, kept(VEE), top=1).plans[0].plan
    plan = replace(plan, zero_stage=0, dp_replicate=plan.dp, dp_shard=1, microbatch_size=8)
    small = with_memory(job, 0.9 * max(simulate(job, plan).peak_allocated))
    message = shortage(small, plan, 0.0)
    assert re.search("least change that fits: (recompute|zero_stage|sequence_parallel)=", message)
    assert "microbatch_size=" not in message


def test_nothing_fits(job: Job) -> None:
    with pytest.raises(NoFeasiblePlan, match=r"own\.csv"):
        search(with_memory(job, 1e6), kept(VEE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pp": 1, "dp_replicate": 8}, "schedule='own.csv' needs pp >= 2, but pp=1: without"),
        ({"schedule": "1f1b"}, "schedule='1f1b' is the name of a schedule that parsim builds, but"),
        ({"schedule": "other"}, None),
    ],
)
def test_the_rules_of_a_plan(job: Job, change: dict[str, object], message: str | None) -> None:
    plan = replace(search(job, kept(VEE), top=1).plans[0].plan, **change)  # type: ignore[arg-type]
    result = violation(plan, job.model, job.cluster)
    assert result == message or (message is not None and str(result).startswith(message))
