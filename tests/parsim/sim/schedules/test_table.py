"""The table of schedules: closed forms in units, a plan's own prediction in seconds, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cost.legal import illegal
from parsim.errors import InputError, PlanError
from parsim.scenario import load_scenario
from parsim.schedule import SCHEDULES
from parsim.schedule.versions import RULES
from parsim.sim import simulate
from parsim.sim.cuts import with_better_cut
from parsim.sim.schedules.planned import planned_table
from parsim.sim.schedules.rows import ScheduleRow
from parsim.sim.schedules.table import chunks_of
from parsim.sim.schedules.timed import UnitTimes
from parsim.sim.schedules.units import schedule_table

SCENARIO = Path(__file__).parents[4] / "scenarios" / "gpt2-small-cpu.yaml"


def rows(pp: int, m: int, v: int = 2, times: UnitTimes | None = None) -> dict[str, ScheduleRow]:
    return {row.name: row for row in schedule_table(pp, m, v=v, times=times).rows}


@pytest.mark.parametrize(("pp", "m"), [(4, 8), (8, 16)])
def test_closed_forms_in_units(pp: int, m: int) -> None:
    by_name = rows(pp, m)
    ideal, wait = 3 * m, pp - 1
    assert by_name["naive"].makespan == 3 * pp * m
    assert by_name["gpipe"].makespan == by_name["1f1b"].makespan == ideal + 3 * wait
    assert by_name["interleaved_1f1b"].makespan == ideal + 3 * wait / 2
    assert by_name["zb_h1"].makespan == by_name["zb_h2"].makespan == ideal + wait
    assert by_name["zb_v"].makespan == ideal + wait / 2
    assert by_name["gpipe"].bubble_fraction == pytest.approx(wait / (m + wait))
    assert by_name["gpipe"].bubble_overhead == pytest.approx(wait / m)
    assert by_name["zb_h2"].span_bubble == by_name["zb_v"].span_bubble == 0.0


def test_activations_weights_and_messages() -> None:
    by_name = rows(4, 8)
    assert by_name["1f1b"].activations == (4, 3, 2, 1)
    assert by_name["gpipe"].activations == (8, 8, 8, 8)
    assert by_name["interleaved_1f1b"].activations[0] == (2 * 4 + 3) / 2  # pv + p - 1 chunks of 1/v
    assert set(by_name["zb_v"].activations) == {4}
    assert by_name["1f1b"].weights == (1, 1, 1, 1)
    assert by_name["1f1b"].messages == 2 * 3 * 8
    assert by_name["interleaved_1f1b"].messages == 2 * 7 * 8
    assert by_name["zb_v"].messages == 2 * 6 * 8  # none between the two stages of the last rank


def test_lengths_and_messages_stretch_the_pipeline() -> None:
    times = UnitTimes(2.0, 3.0, 1.0, 0.5)
    by_name = rows(4, 8, times=times)
    # GPipe: m (F + B) + (p - 1) (F + B + 2 messages)
    assert by_name["gpipe"].makespan == 8 * 6 + 3 * (6 + 2 * 0.5)


def test_what_sizes_do_not_allow_is_said() -> None:
    table = schedule_table(5, 7)
    assert [row.name for row in table.rows] + [name for name, _ in table.refused]
    assert {row.name for row in table.rows} | dict(table.refused).keys() == set(SCHEDULES)
    table = schedule_table(4, 11)
    assert "num_microbatches=11" in dict(table.refused)["interleaved_1f1b"]


@pytest.mark.parametrize(
    ("pp", "m", "v"), [(4, 3, 2), (3, 1, 3), (2, 4, 3), (2, 1, 2), (8, 6, 4), (5, 10, 2)]
)
def test_rows_are_the_schedules_that_a_scenario_may_have(pp: int, m: int, v: int) -> None:
    sizes = {"cluster.devices_per_node": pp, "training.global_batch_size": m, "plan.pp": pp}
    loaded = load_scenario(SCENARIO, {**sizes, "model.num_layers": pp * v})
    plan = replace(loaded.fixed_plan(), stage_layers=None)
    refused = dict(schedule_table(pp, m, v=v).refused)
    for name in (*SCHEDULES, *RULES):
        named = replace(plan, schedule=name, v=chunks_of(name, v))
        assert refused.get(name) == illegal(loaded.job, named)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedule_table(1, 4), "pp=1: a pipeline has at least 2 ranks"),
        (lambda: schedule_table(4, 4, only=["1f1"]), r"--only '1f1' is no schedule \(did you mean"),
        (lambda: schedule_table(4, 11, only=["interleaved_1f1b"]), "num_microbatches=11"),
        (lambda: UnitTimes(0.0), "times 0, 1, 1, 0 .* F > 0"),
        (lambda: UnitTimes(1.0, float("nan")), "allowed are finite lengths"),
    ],
)
def test_refusals(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=message):
        call()


def test_a_plan_in_seconds_is_what_simulate_says() -> None:
    scenario = load_scenario(SCENARIO)
    job, plan = scenario.job, scenario.fixed_plan()
    only = ("1f1b", "gpipe", "zb_v", "chimera")
    table = planned_table(job, plan, only=only)
    assert (table.unit, [row.name for row in table.rows]) == (
        "s",
        ["gpipe", "1f1b", "zb_v", "chimera"],
    )
    for row in table.rows:
        cut = plan.stage_layers if row.v == plan.v else None
        other = replace(plan, schedule=row.name, v=row.v, stage_layers=cut)
        predicted = simulate(job, with_better_cut(job, other))
        assert row.in_seconds is not None
        assert row.in_seconds.step_time == predicted.step_time
        assert row.makespan == pytest.approx(predicted.pipeline_time, rel=1e-12)
        assert row.bubble_fraction == predicted.bubble_fraction
        assert row.in_seconds.peak_allocated == max(predicted.peak_allocated)
    chunked = replace(plan, schedule="interleaved_1f1b", v=4, stage_layers=None)
    for asked, chunks in ((None, 4), (3, 3)):  # the plan's own schedule is the plan itself
        table = planned_table(job, chunked, v=asked, only=("interleaved_1f1b", "looped_bfs"))
        assert [row.v for row in table.rows] == [chunks, 2 if asked is None else 3]
        predicted = simulate(job, with_better_cut(job, replace(chunked, v=chunks)))
        assert table.rows[0].in_seconds is not None
        assert table.rows[0].in_seconds.step_time == predicted.step_time
    odd = replace(plan, num_microbatches=3)
    table = planned_table(replace(job, global_batch_size=3), odd, only=("1f1b", "chimera"), v=4)
    assert [row.name for row in table.rows] == ["1f1b"]
    assert "in two directions, but num_microbatches=3" in dict(table.refused)["chimera"]
    with pytest.raises(PlanError, match="pp=1: the plan has no pipeline"):
        planned_table(job, replace(plan, pp=1, dp_replicate=2))


def test_the_order_found_for_a_plan_stands_beside_the_named_ones() -> None:
    loaded = load_scenario(SCENARIO)
    plan = loaded.fixed_plan()
    table = planned_table(loaded.job, plan, only=("1f1b", "auto"))
    assert [row.name for row in table.rows] == ["1f1b", "auto"]
    named, auto = (row.in_seconds for row in table.rows)
    assert named is not None
    assert auto is not None
    assert auto.step_time <= named.step_time
    assert auto.step_time == simulate(loaded.job, replace(plan, schedule="auto")).step_time
    assert planned_table(loaded.job, plan).rows[-1].name == "auto"


def test_a_plan_without_flush_is_what_simulate_says() -> None:
    """Whatever the scenario's own schedule: gradients live as long as the rule lets them."""
    loaded = load_scenario(SCENARIO, {"training.global_batch_size": 12})
    table = planned_table(loaded.job, loaded.fixed_plan(), only=tuple(RULES))
    assert [row.name for row in table.asynchronous] == list(RULES)
    for row in table.asynchronous:
        plan = replace(loaded.fixed_plan(), schedule=row.name)
        predicted = simulate(loaded.job, plan)
        assert row.steady * plan.num_microbatches == pytest.approx(predicted.step_time, rel=1e-12)
        assert row.peak == predicted.peak_allocated
        document = row.to_json()
        assert document["peak_allocated_bytes"] == max(predicted.peak_allocated)
        assert document["steady_per_microbatch_s"] == row.steady
        assert "fill_s" in document
        assert "fill" not in document


def test_schedules_without_flush_can_be_chosen_alone() -> None:
    table = schedule_table(4, 8, only=["pipedream"])
    assert (table.rows, [row.name for row in table.asynchronous]) == ((), ["pipedream"])
    assert table.headline == "pp=4, 8 micro-batches: without flush: pipedream"
    assert table.asynchronous[0].to_json()["fill"] == 3.0  # in units
    both = schedule_table(4, 8, only=["pipedream_2bw", "1f1b"])
    assert [row.name for row in both.rows] == ["1f1b"]
    assert [row.name for row in both.asynchronous] == ["pipedream_2bw"]
    with pytest.raises(InputError, match="num_microbatches=0 is too small"):
        schedule_table(4, 0, only=["pipedream"])


def test_why_a_plan_cannot_go_without_flush() -> None:
    scenario = load_scenario(SCENARIO, {"cluster.devices_per_node": 4})
    plan = replace(scenario.fixed_plan(), dp_replicate=2, num_microbatches=2)
    table = planned_table(scenario.job, plan, only=("1f1b", "pipedream"))
    assert not table.asynchronous
    assert "without others to reduce with, but dp=2" in dict(table.refused)["pipedream"]
