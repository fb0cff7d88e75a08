"""Schedules with two copies of the model in seconds and bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsim.cost.job import Job
from parsim.cost.step.pair_sums import tied_seconds
from parsim.errors import PlanError
from parsim.plan import Plan, PlanTable
from parsim.scenario import load_scenario
from parsim.schedule import build_schedule
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.schedules.planned import planned_table
from parsim.sim.schedules.timed import UnitTimes, unit_timeline
from tests.commands import Cli, runner

SCENARIO = """
model: {name: gpt2, seq_len: 512, dropout: false}
cluster: {system: dgx-a100, nodes: 2, devices_per_node: 4}
software: SOFTWARE
training: {global_batch_size: 16, precision: bf16}
plan: {pp: 4, dp: 2, schedule: chimera}
"""
STACKS = ("generic", "torchtitan", "megatron-2022")
NAMES = ("chimera", "dualpipe")


def job_of(tmp_path: Path, stack: str) -> Job:
    path = tmp_path / f"{stack}.yaml"
    path.write_text(SCENARIO.replace("SOFTWARE", stack).replace("chimera", "1f1b"))
    return load_scenario(path).job


PLAN = Plan(pp=4, dp_replicate=2, num_microbatches=8)


def evaluated(job: Job, name: str) -> Evaluation:
    return evaluate(job, replace(PLAN, schedule=name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stack", STACKS)
def test_both_tiers_agree_and_memory_is_that_of_two_copies(
    tmp_path: Path, stack: str, name: str
) -> None:
    job = job_of(tmp_path, stack)
    ours = simulate(job, replace(PLAN, schedule=name), tier="events", timeline=True)
    single = simulate(job, replace(PLAN, schedule="1f1b"))
    for rank, memory in enumerate(ours.memory_by_rank):
        for kind in ("parameters", "optimizer"):
            both = single.memory_by_rank[rank][kind] + single.memory_by_rank[3 - rank][kind]
            assert memory[kind] == pytest.approx(both, rel=1e-12)
    assert ours.bubble_fraction < single.bubble_fraction
    assert sum(ours.breakdown.values()) == pytest.approx(ours.step_time, rel=1e-9)
    assert ours.timeline is not None
    peaks = [max(curve.bytes) for curve in ours.timeline.memory]
    assert peaks == pytest.approx(list(ours.peak_allocated), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_pair_of_ranks_adds_up_what_the_replicas_have_reduced(
    tmp_path: Path, name: str
) -> None:
    """An all-reduce of two, of all that a rank holds: of a table alone it is a tied one's."""
    job = job_of(tmp_path, "generic")
    ours = evaluated(job, name)
    costs, table = ours.step.costs, PlanTable.of([replace(PLAN, schedule=name)])
    assert costs.copies is not None
    assert costs.copies.shape == (4, 1)
    assert np.array_equal(costs.copies, costs.copies[::-1])
    tied = tied_seconds(job, table, np.array([True]), 1.0)[0]
    lookup = job.model.lookup
    assert lookup is not None
    parameters = float(costs.parameters[[0, 3], 0].sum())
    assert tied < costs.copies[0, 0] < tied * parameters / (lookup.vocab_size * lookup.width) * 1.01
    pairs = [t for t in ours.step.program.tasks if t.price == "copies"]
    assert [task.ranks for task in pairs] == [(0, 3), (1, 2)]
    for task in pairs:
        end = ours.end.times[task.name]
        assert end.end == pytest.approx(end.start + costs.copies[list(task.ranks)], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_equal_stages_take_what_the_staircase_says(tmp_path: Path, name: str) -> None:
    """Prices of one stage for all, and no messages: the pipeline phase in units."""
    job = job_of(tmp_path, "generic")
    step = evaluated(job, name).step
    schedule = build_schedule(name, pp=4, num_microbatches=8)
    assert step.schedule(0).ranks == schedule.ranks
    assert step.costs.forward.shape == (8, 1)
    assert np.array_equal(step.costs.forward[:4], step.costs.forward[4:])
    units = unit_timeline(schedule, UnitTimes()).end
    assert units < unit_timeline(build_schedule("1f1b", pp=4, num_microbatches=8), UnitTimes()).end


def test_the_table_shows_them_and_bad_sizes_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_of(tmp_path, "generic")
    table = planned_table(job, PLAN, only=("1f1b", *NAMES))
    assert [row.name for row in table.rows] == ["1f1b", *NAMES]
    assert all(row.in_seconds is not None for row in table.rows)
    assert [row.weights for row in table.rows] == [(1,) * 4, (2,) * 4, (2,) * 4]
    with pytest.raises(PlanError, match="num_microbatches=7; allowed: 2, 4, 6"):
        simulate(job, replace(PLAN, schedule="chimera", num_microbatches=7))
    with pytest.raises(PlanError, match="one chunk each per rank, but v=2"):
        simulate(job, replace(PLAN, schedule="dualpipe", v=2))
    cli: Cli = runner(capsys)
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.replace("SOFTWARE", "generic"))
    assert cli("simulate", path, "--json").document["plan"]["schedule"] == "chimera"
    shared = cli("simulate", path, "--contention")
    assert (shared.code, "schedule=chimera has two copies of the model" in shared.err) == (2, True)


def test_activations_on_the_host_are_those_of_both_copies(tmp_path: Path) -> None:
    job = job_of(tmp_path, "generic")
    plan = replace(PLAN, schedule="chimera", offload_layers=1)
    ours = simulate(job, plan, tier="events", timeline=True)
    assert (
        ours.memory["activations"]
        < simulate(job, replace(plan, offload_layers=0)).memory["activations"]
    )
