"""`schedule: auto`: never slower than a named one, within memory, executable, the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cost.job import Job
from parsim.errors import InputError, PlanError, ScheduleError
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


STAGES = """
model: {name: gpt2, seq_len: 512, dropout: false, tied_embeddings: false}
cluster: {system: dgx-a100, nodes: 1, devices_per_node: 8}
software: generic
training: {global_batch_size: 24, precision: bf16}
plan:
  schedule: auto
  stages: [{layers: 6, replicas: 4}, {layers: 3, tp: 2}, {layers: 3, replicas: 2}]
"""


def test_stages_of_their_own_have_an_order_too(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(STAGES)
    scenario = load_scenario(path)
    job, plan = scenario.job, scenario.fixed_plan()
    auto = auto_schedule(job, replace(plan, actions=None))
    named = simulate(job, replace(plan, schedule="1f1b", actions=None)).step_time
    assert (auto.plan, list(auto.named)) == (plan, ["1f1b"])
    assert auto.named["1f1b"] == pytest.approx(named, rel=1e-12)
    prediction = simulate(job, plan, tier="events", timeline=True)
    assert auto.step_time == prediction.step_time < 0.99 * named
    assert "agree on the step time" in prediction.checked
    assert prediction.timeline is not None
    assert any(note.startswith("schedule=auto: an order") for note in scenario.notes)


def test_stages_of_their_own_hold_no_more_than_fits(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(STAGES)
    scenario = load_scenario(path)
    job, plan = scenario.job, replace(scenario.fixed_plan(), actions=None)
    wide = auto_schedule(job, plan)
    least = max(simulate(job, replace(plan, schedule="1f1b")).peak_allocated)
    small = replace(job.system.device, memory=job.context_memory + 1.25 * least)
    tight = replace(job, cluster=replace(job.cluster, system=replace(job.system, device=small)))
    narrow = auto_schedule(tight, plan)
    assert sum(narrow.limits) < sum(wide.limits)
    assert wide.step_time <= narrow.step_time <= narrow.named["1f1b"]
    assert max(simulate(tight, narrow.plan).peak_allocated) <= tight.usable_memory


def test_a_file_of_rows_is_the_order_of_stages_of_their_own(tmp_path: Path) -> None:
    path, rows = tmp_path / "stages.yaml", tmp_path / "mine.csv"
    path.write_text(STAGES)
    scenario = load_scenario(path)
    plan = scenario.fixed_plan()
    rows.write_text(plan.actions or "")
    path.write_text(STAGES.replace("auto", "mine.csv"))
    again = load_scenario(path).fixed_plan()
    assert again.actions == plan.actions
    job = scenario.job
    assert simulate(job, again).step_time == simulate(job, plan).step_time
    lines = rows.read_text().splitlines()
    for wrong, message in (
        ([lines[1], lines[0], *lines[2:]], "mine.csv:1: 0F0 stands 0 times, not 1"),
        (lines[1:], "has 6 rows; use 7, one for each replica"),
        ([*lines[:-1], ",".join(reversed(lines[-1].split(",")))], "nothing lets"),
    ):
        rows.write_text("\n".join(wrong))
        with pytest.raises(ScheduleError, match=message):
            load_scenario(path)


def test_a_search_orders_stages_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(STAGES)
    job = load_scenario(path).job
    space = PlanSpace(
        global_batch_size=24,
        pp=(2, 4),
        tp=(1,),
        microbatch_size=(1,),
        schedule=("auto", "1f1b"),
        unequal_stages=True,
    )
    best = [entry for entry in search(job, space, top=12).plans if entry.plan.stages]
    assert best
    for entry in best:
        assert entry.plan.schedule == "auto"
        assert entry.plan.actions is not None
        named = replace(entry.plan, schedule="1f1b", actions=None)
        assert entry.step_time <= simulate(job, named).step_time * (1 + 1e-12)
        assert simulate(job, entry.plan).step_time == entry.step_time
