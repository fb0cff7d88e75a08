"""The figures behind intervals: quantiles, what repeats, and coverage over the shipped runs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from math import exp
from pathlib import Path

import numpy as np
import pytest

from parsim.cost.job import EXPERTS, Job
from parsim.fitting.constants.address import Address
from parsim.fitting.constants.families import families
from parsim.fitting.constants.source_cases import load_source
from parsim.fitting.intervals.departures import departures
from parsim.fitting.intervals.figures import (
    added,
    calibrated_errors,
    covered,
    errors_text,
    figures,
    gather_errors,
    residuals_of,
)
from parsim.fitting.intervals.groups import groups
from parsim.fitting.intervals.leave_out import refitted
from parsim.fitting.intervals.novelty import without
from parsim.fitting.intervals.reach import reach
from parsim.fitting.intervals.residuals import (
    Residual,
    half,
    independent,
    weighted_quantile,
    weights,
)
from parsim.sim.confidence.known_errors import ANY, CALIBRATED, Errors, errors_of, read_errors
from parsim.validation.step.case import Case
from parsim.validation.tables import JUDGED_ALONE, shipped_tables
from parsim.validation.validate import Validation, validate

PLAIN = {"kernels": 1.0}
TABLES = ("korthikanti", "megatron_sc21", "mlperf", "simumax", "torchtitan")


@cache
def published() -> Validation:
    """The small tables: 125 runs on four devices under several stacks."""
    return validate([path for path in shipped_tables() if path.stem.startswith(TABLES)])


@cache
def runs() -> tuple[Residual, ...]:
    return tuple(residuals_of(published()))


@cache
def gathered() -> Errors:
    return figures(runs(), errors_of())


def with_errors(values: list[float], cells: list[str] | None = None) -> list[Residual]:
    cells = cells or [str(i) for i in range(len(values))]
    return [
        replace(runs()[0], error=value, cell=cell)
        for value, cell in zip(values, cells, strict=True)
    ]


def on(run: Residual, device: str, software: str = "y", release: str = "") -> Residual:
    where = replace(run.standing, device=device, software=software, release=release)
    return replace(run, standing=where)


def test_weighted_quantiles() -> None:
    values, even = np.arange(21.0), np.ones(21)
    assert weighted_quantile(values, even, 0.5) == pytest.approx(10.0)
    assert weighted_quantile(values[::-1], even, 0.9) == pytest.approx(18.4)
    heavy = np.where(values == 3.0, 1e6, 1.0)
    assert weighted_quantile(values, heavy, 0.5) == pytest.approx(3.0, abs=0.01)


@pytest.mark.slow
def test_a_cell_that_repeats_counts_as_the_root_of_its_runs() -> None:
    each = weights(with_errors([0.0] * 17, ["a", *["b"] * 16]))
    assert each[1:].sum() == pytest.approx(4.0 * each[0])


def test_a_table_counts_as_the_root_of_its_cells() -> None:
    small = [replace(run, table="small") for run in with_errors([0.0], ["c"])]
    each = weights([*with_errors([0.0] * 16), *small])
    assert each[:16].sum() == pytest.approx(4.0 * each[16])


def test_equal_weights_are_as_many_runs() -> None:
    assert independent(np.ones(7)) == pytest.approx(7.0)
    assert independent(np.array([1.0, 0.0])) == pytest.approx(1.0)


def test_few_runs_have_at_least_their_largest_error() -> None:
    assert half(with_errors([0.0, 0.7]), PLAIN) == pytest.approx(0.7)
    assert half(with_errors([-0.5, 0.4, 0.31]), PLAIN) == pytest.approx(0.5)
    many = with_errors([0.4 + 0.001 * i for i in range(1000)])
    assert half(many, PLAIN) == pytest.approx(1.2, abs=0.005)


def test_small_groups_lean_on_all_runs() -> None:
    many = [on(run, "z") for run in with_errors([0.6, -0.6] * 200)]
    few = [on(run, "x") for run in with_errors([0.3] * 2)]
    gathered = {(g.device, g.software): g for g in groups([*many, *few], PLAIN)}
    assert 0.3 < gathered["x", "y"].half < 0.45 < gathered["z", "y"].half


def test_a_release_has_a_group_of_its_own() -> None:
    made = with_errors([0.31] * 40 + [0.9] * 2)
    made = [on(run, "x", "y", "1.0" if i < 40 else "0.9") for i, run in enumerate(made)]
    gathered = {g.release: g.half for g in groups(made, PLAIN) if g.device == "x" and g.n < 42}
    assert gathered["0.9"] == pytest.approx(0.9)
    assert gathered["1.0"] < 0.45


def test_errors_that_grow_with_size_are_seen() -> None:
    def run(devices: float, error: float) -> Residual:
        standing = replace(runs()[0].standing, sizes={"devices": devices})
        return replace(runs()[0], error=error, standing=standing, cell=str(devices))

    grown = [run(2.0**i, 0.03 * i) for i in range(8)]
    assert reach(grown) == pytest.approx(0.03 / np.log(2.0) / 2**0.5, rel=0.05)
    assert reach([run(2.0**i, 0.01 * (-1) ** i) for i in range(8)]) < 0.005


def test_a_change_that_changes_nothing_adds_nothing() -> None:
    def same(job: Job) -> Job:
        return job

    assert added(runs()[:20], same) == pytest.approx(0.0, abs=1e-6)


def test_a_report_of_a_calibrated_machine(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    times = [
        {"counted": i < 11, "step_time_s": {"predicted": 1.0, "measured": exp(0.01 * (i - 5))}}
        for i in range(12)
    ]
    path.write_text(json.dumps({"cases": times}), encoding="utf-8")
    (gathered,) = calibrated_errors([path])
    assert (gathered.device, gathered.n) == (CALIBRATED, 11)
    assert gathered.half == pytest.approx(0.04)


def test_the_file_is_read_as_it_was_written() -> None:
    again = read_errors(json.loads(errors_text(gathered())))
    assert again.groups.keys() == gathered().groups.keys()
    assert again.reach == pytest.approx(gathered().reach, abs=1e-4)
    assert again.weights == pytest.approx(gathered().weights, abs=1e-4)
    assert again.factors == pytest.approx(gathered().factors, abs=1e-4)
    assert again.models == gathered().models
    assert again.sites == gathered().sites


@pytest.mark.slow
def test_all_figures_together() -> None:
    gathered = gather_errors(runs()[:30])
    assert gathered.unknown_software > 0.0
    assert gathered.groups[ANY, ANY, ANY].n == 30


def test_rows_are_judged_by_other_figures_without_predicting_them_again() -> None:
    wide = replace(gathered(), weights={**gathered().weights, "kernels": 1.0})
    before, after = published(), published().with_errors(wide)
    assert [row.predicted_step for row in before.rows] == [row.predicted_step for row in after.rows]
    assert (after.coverage().covered or 0.0) > 0.97
    assert (after.coverage().half_width or 0.0) > 0.5


def test_a_source_is_judged_by_constants_that_have_not_seen_it() -> None:
    """With the catalog's constants that is its table left out; slower ones move its rows."""
    table = "simumax_b200_real_vs_sim"
    whole = figures(runs(), errors_of())
    listed = [source for family in families() for source in family.sources]
    parts = [load_source(entry) for entry in listed if entry.table == table]
    source = replace(
        parts[0],
        cases=tuple(case for part in parts for case in part.cases),
        used=tuple(used for part in parts for used in part.used),
    )
    judge = refitted(runs(), whole)
    same = judge(source, [source], {})
    rows = [run for run in runs() if run.table == table]
    errors = without(whole, [run for run in runs() if run.table != table])
    inside = sum(covered(errors, run) for run in rows) / len(rows)
    assert same.n == len(rows)
    assert same.covered == pytest.approx(inside)
    slow = Address.parse("device b200-sxm memory_efficiency")
    moved = judge(source, [source], {slow: 0.2})
    assert (moved.error or 0.0) > 2.0 * (same.error or 0.0)
    assert moved.half_width == same.half_width


@pytest.mark.parametrize(
    ("table", "id"),
    [
        ("mlperf_llama31_8b_public", "mlperf-5.1-llama31_8b-226"),
        ("amd_instinct_public", "amd_instinct_public-0009"),
    ],
)
def test_a_run_of_a_guessed_format_or_of_one_digit_is_in_no_figure(table: str, id: str) -> None:
    shipped = validate([path for path in shipped_tables() if path.stem == table])
    result = Validation(rows=tuple(replace(row, table="open") for row in shipped.rows))
    cases = ((row, row.case) for row in result.rows)
    little = [row for row, case in cases if isinstance(case, Case) and case.says_little]
    assert [row.row_id for row in little] == [id]
    assert len(residuals_of(result)) == sum(row.error is not None for row in result.rows) - 1


def test_a_table_that_is_judged_alone_is_in_no_figure() -> None:
    row = next(row for row in published().rows if row.error is not None)
    apart = replace(row, table="deepspeed_public")
    assert len(residuals_of(Validation(rows=(row, apart, row)))) == 2
    assert not {run.table for run in runs()} & set(JUDGED_ALONE)


def test_a_release_is_irregular_where_its_time_is_like_that_of_no_other() -> None:
    run = runs()[0]
    timed = [
        replace(run, measured=seconds, standing=replace(run.standing, release=release))
        for release, seconds in (("1", 10.0), ("2", 10.4), ("3", 16.0))
    ]
    assert departures(timed) == [0.0, 0.0, pytest.approx(16.0 / 10.4)]
    assert departures(timed[:2]) == [0.0, 0.0]
    assert departures(timed[2:]) == [0.0]  # no other release ran it
    marked = {group.release: group.irregular for group in groups(timed, PLAIN)}
    assert marked["3"] > 1.5
    assert marked["1"] == marked[ANY] == 0.0


def test_mixtures_of_a_device_count_apart_from_its_dense_models() -> None:
    dense = runs()[0]
    mixture = replace(
        dense, error=0.4, standing=replace(dense.standing, software=f"{dense.software}{EXPERTS}")
    )
    halves = {
        each.software: each.half
        for each in groups([replace(dense, error=0.05), mixture], PLAIN)
        if each.device == dense.device and each.release == ANY
    }
    assert halves[f"{ANY}{EXPERTS}"] > halves[ANY]


def test_an_irregular_run_widens_its_own_release_alone() -> None:
    run = runs()[0]
    timed = [
        replace(run, measured=seconds, error=error, cell=release,
                standing=replace(run.standing, release=release))
        for release, seconds, error in (("1", 10.0, 0.01), ("2", 10.4, 0.05), ("3", 16.0, 0.5))
    ]  # fmt: skip
    halves = {group.release: group.half for group in groups(timed, PLAIN) if group.n != len(timed)}
    assert halves["3"] == pytest.approx(0.5)
    assert halves[ANY] < 0.4
