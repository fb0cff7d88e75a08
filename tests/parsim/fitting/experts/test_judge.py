"""Experts' plans against the search: jobs of which a vendor published two plans, and one alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.fitting.experts.judge import CLOSE, JudgedPlan, elsewhere, judge, outrun, space_around
from parsim.fitting.reports.experts import (
    VENDORS,
    beaten,
    behind_row,
    plan_row,
    summary,
    tried,
    vendor_tables,
)
from parsim.plan.space import Between
from parsim.sim.confidence.memory_fit import Fit
from parsim.validation.predict_row import predict_row
from parsim.validation.validate import read_table

DGXC = "nvidia_dgxc_benchmarking_public"


@pytest.fixture(scope="module")
def judged() -> list[JudgedPlan]:
    """Nemotron-4 15B on 16 H100s: tp 4 with micro-batches of 4, and tp 2 with 2, both published."""
    table = next(path for path in vendor_tables() if path.stem == DGXC)
    wanted = {f"{DGXC}-{number}" for number in ("0023", "0073", "0119")}
    rows = [predict_row(DGXC, row) for row in read_table(table) if row["row_id"] in wanted]
    return list(judge(rows))


def test_all_vendors_are_shipped() -> None:
    assert {path.stem for path in vendor_tables()} == set(VENDORS)


def test_the_plan_that_ran_faster_is_the_first(judged: list[JudgedPlan]) -> None:
    slower, faster = judged
    assert [len(plan.rows) for plan in judged] == [2, 1]
    assert slower.measured > faster.measured
    assert (faster.verdict, faster.slower) == ("first", 0.0)
    assert slower.slower > 0.0
    assert slower.best is not None
    assert slower.best.plan.label() == faster.expert.plan.label()
    assert slower.best_measured == pytest.approx(faster.measured)


def test_a_plan_is_tied_behind_or_too_large(judged: list[JudgedPlan]) -> None:
    plan = judged[0]
    assert plan.best is not None
    expert, best = plan.expert, plan.best
    near = replace(plan, expert=replace(expert, step_time=best.step_time * (1.0 + 0.99 * CLOSE)))
    assert near.verdict == "within 3 %"
    apart = replace(expert, step_time=best.step_time * 1.2, tied=False)
    assert replace(plan, expert=apart).verdict == "behind"
    assert replace(plan, expert=replace(apart, tied=True)).verdict == "tied"
    assert replace(plan, expert=replace(expert, fit=Fit.TOO_LARGE)).verdict == "does not fit"


def test_rows_of_the_page(judged: list[JudgedPlan]) -> None:
    row = plan_row(judged[0])
    assert row[0] == "Nemotron-4 15B bf16"
    assert "(measured 2.746 s)" in row[7]
    assert tried(judged).startswith("Of 1 plans ")
    assert tried(judged).endswith("it was faster in 1.")
    assert "tensor" in behind_row(judged[0])[5]
    counted = list(summary(judged, [run for plan in judged for run in plan.rows]))
    assert counted[0] == (DGXC, "3", "2", *counted[-1][3:])
    assert sum(map(int, counted[-1][3:8])) == 2


def test_the_space_is_the_stacks(judged: list[JudgedPlan]) -> None:
    plan = judged[0].expert.plan
    space = space_around(replace(plan, dp_replicate=2, dp_shard=2, stage_layers=(1, 2)))
    assert (space.tp, space.zero_stage, space.schedule, space.common.stage_layers) == (None,) * 4
    assert space.dp_shard == Between()
    assert not isinstance(space.pp, Between)


def test_a_plan_is_outrun_by_another_of_its_job(judged: list[JudgedPlan]) -> None:
    slower, faster = judged
    rows = [*slower.rows, *faster.rows]
    assert outrun(slower.rows, rows) is None  # by 2 % alone
    assert outrun(faster.rows, rows) is None
    late = tuple(replace(row, measured_step=2.0 * faster.measured) for row in slower.rows)
    other = outrun(late, [*late, *faster.rows])
    assert other is not None
    assert other.plan == faster.rows[0].plan
    assert other.measured == pytest.approx(faster.measured)
    assert other.rate == pytest.approx(other.batch / 16 / faster.measured)
    assert elsewhere(late, [*late, *faster.rows]) is None
    lost = replace(slower, outrun=other, expert=replace(slower.expert, fit=Fit.TOO_LARGE))
    assert "instead of" in behind_row(lost)[6]
    assert beaten([lost]).startswith("Of the other 1, 1 were outrun")


def test_a_plan_is_outrun_by_one_with_another_batch(judged: list[JudgedPlan]) -> None:
    slower, faster = judged
    late = tuple(replace(row, measured_step=2.0 * faster.measured) for row in slower.rows)
    for devices, is_outrun in ((8, False), (16, True), (32, True)):
        decision = (*faster.rows[0].decision[:-2], devices, 1000)
        other = elsewhere(late, [*late, replace(faster.rows[0], decision=decision)])
        assert (other is not None) == is_outrun
        if other is not None:
            lost = replace(slower, elsewhere=other)
            assert behind_row(lost)[6].endswith("% more samples/s a device")
