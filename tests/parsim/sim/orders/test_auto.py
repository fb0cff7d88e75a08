"""`schedule: auto`: never slower than a named one, within memory, executable, the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cost.job import Job
from parsim.errors import InputError, PlanError
from parsim.plan import Plan, PlanSpace
from parsim.planner import search
from parsim.scenario import load_scenario
from parsim.schedule import Kind, schedule_of
from parsim.schedule.check import check_schedule
from parsim.sim import simulate
from parsim.sim.orders.auto import auto_schedule, ordered
from parsim.sim.orders.trial import NAMED

SCENARIO = """
model: {name: gpt2, seq_len: 128, dropout: false}
cluster: {system: dgx-a100, nodes: 1, devices_per_node: 4}
software: generic
training: {global_batch_size: 8, precision: bf16}
plan: {pp: 4, stage_layers: [2, 5, 4, 1], schedule: auto}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("auto") / "s.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def job(file: Path) -> Job:
    return load_scenario(file).job


PLAN = Plan(pp=4, num_microbatches=8, stage_layers=(2, 5, 4, 1), schedule="auto")


def test_it_is_as_fast_as_any_named_schedule_and_says_so(job: Job) -> None:
    auto = auto_schedule(job, PLAN)
    times = {
        name: simulate(job, replace(PLAN, schedule=name)).step_time
        for name in NAMED
        if not name.startswith("zb")  # whose W the generic stack prices as its own split does
    }
    assert auto.step_time <= min(*times.values(), *auto.named.values()) * (1 + 1e-12)
    assert auto.step_time == simulate(job, PLAN, tier="events").step_time
    assert auto.named["1f1b"] == pytest.approx(times["1f1b"], rel=1e-12)
    assert auto.words().startswith("schedule=auto: ")
    check_schedule(schedule_of(auto.plan))
    assert auto == auto_schedule(job, PLAN)
    assert ordered(job, auto.plan) is auto.plan


def test_a_scenario_holds_the_order_and_the_search_finds_it(file: Path, job: Job) -> None:
    scenario = load_scenario(file)
    plan = scenario.fixed_plan()
    assert plan == auto_schedule(job, replace(plan, actions=None)).plan
    assert (plan.schedule, plan.stage_layers) == ("auto", PLAN.stage_layers)
    assert any(note.startswith("schedule=auto: ") for note in scenario.notes)
    assert scenario.plan_space().common.actions is None
    assert scenario.files == (file,)
    space = PlanSpace(
        global_batch_size=8, pp=(4,), tp=(1,), microbatch_size=(1,), schedule=("auto", "1f1b")
    )
    best = search(job, space, top=1).plans[0]
    assert best.plan.schedule == "auto"
    assert simulate(job, best.plan).step_time == pytest.approx(best.step_time, rel=1e-12)


def test_a_device_with_room_for_few_micro_batches(job: Job) -> None:
    small = replace(job.system.device, memory=job.context_memory + 1.62e9)
    tight = replace(job, cluster=replace(job.cluster, system=replace(job.system, device=small)))
    wide, narrow = auto_schedule(job, PLAN), auto_schedule(tight, PLAN)
    assert sum(narrow.limits) < sum(wide.limits)
    assert narrow.step_time >= wide.step_time
    assert max(simulate(tight, narrow.plan).peak_allocated) <= tight.usable_memory


def test_sharded_parameters_keep_backwards_whole(file: Path) -> None:
    """The executor frees parameters behind each action, so that I and W cannot be apart."""
    text = SCENARIO.replace("generic", "executor-cpu").replace("dgx-a100", "cpu")
    text = text.replace("devices_per_node: 4", "devices_per_node: 8").replace("bf16", "fp32")
    path = file.parent / "sharded.yaml"
    path.write_text(text.replace("schedule: auto}", "schedule: auto, zero_stage: 3, dp_shard: 2}"))
    plan = load_scenario(path).fixed_plan()
    assert all(a.kind in (Kind.F, Kind.B) for row in schedule_of(plan).ranks for a in row)


def test_refusals(job: Job) -> None:
    with pytest.raises(PlanError, match="schedule='auto' needs pp >= 2"):
        simulate(job, Plan(schedule="auto", dp_replicate=4, num_microbatches=2))
    with pytest.raises(PlanError, match="orders at most 5,000 micro-batches in a few seconds"):
        simulate(job, replace(PLAN, num_microbatches=5001))
    with pytest.raises(PlanError, match="one chunk per rank; use v=1"):
        simulate(job, replace(PLAN, v=2, stage_layers=None))
    with pytest.raises(InputError, match="pp=1: the plan has no pipeline to order"):
        auto_schedule(job, Plan(dp_replicate=4, num_microbatches=2))
