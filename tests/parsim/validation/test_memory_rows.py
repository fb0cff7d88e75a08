"""Measured peaks as bounds of the predicted ones: every row that states a peak, by stack."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import mean

import pytest

from parsim.sim import simulate
from parsim.units import GIB
from parsim.validation.predict_row import predict_row
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import RowSkipped, shipped_tables
from parsim.validation.validate import read_table
from parsim.validation.validated_row import ValidatedRow

TABLES = {path.stem: path for path in shipped_tables()}


@cache
def compared(table: str) -> tuple[ValidatedRow, ...]:
    """Rows of a table whose peaks are compared."""
    predicted = [predict_row(table, row) for row in read_table(TABLES[table])]
    return tuple(row for row in predicted if row.memory_error is not None)


@pytest.mark.parametrize(
    ("table", "rows", "largest_mean", "largest"),
    [("simumax_b200_real_vs_sim", 24, 0.002, 0.006), ("torchtitan_public_8b", 4, 0.03, 0.06)],
)
def test_errors_of_measured_peaks(
    table: str, rows: int, largest_mean: float, largest: float
) -> None:
    """More rows may become predictable; those that are stay within the bounds."""
    errors = [abs(row.memory_error or 0.0) for row in compared(table)]
    assert len(errors) >= rows
    assert mean(errors) <= largest_mean
    assert max(errors) <= largest


def case_of(table: str, row_id: str) -> Case:
    return next(
        build_case(parse_row(row)) for row in read_table(TABLES[table]) if row["row_id"] == row_id
    )


@pytest.mark.parametrize(("number", "gib"), [("0001", (66.55, 62.97)), ("0025", (86.61, 87.08))])
def test_both_ranks_of_a_pipeline(number: str, gib: tuple[float, float]) -> None:
    """Where SimuMax prints the peak of every rank."""
    case = case_of("simumax_b200_real_vs_sim", f"simumax_b200_real_vs_sim-{number}")
    predicted = simulate(case.job, case.plan).peak_allocated
    assert [x / GIB for x in predicted] == pytest.approx(gib, rel=0.003)


def test_a_peak_of_an_unstated_mode_is_not_compared() -> None:
    row = read_table(TABLES["simumax_b200_real_vs_sim"])[0]
    predicted = predict_row("t", {**row, "recompute": ""})
    assert predicted.memory_error is None
    assert (
        predicted.notes[-1]
        == f"{row['row_id']}: peak memory is not compared: recompute is not stated"
    )
    assert predict_row("t", row).memory_error is not None


def test_torchtitan_s_figures_are_compared_with_reserved_memory() -> None:
    for row in compared("torchtitan_public_8b"):
        assert row.predicted_reserved is not None
        assert row.predicted_peak is not None
        assert row.predicted_reserved > row.predicted_peak
    assert all(row.predicted_reserved is None for row in compared("simumax_b200_real_vs_sim"))


@pytest.mark.parametrize("table", ["simumax_b200_real_vs_sim", "torchtitan_public_8b"])
def test_intervals_cover_what_was_measured(table: str) -> None:
    """At least the 80 % that they promise."""
    hits = []
    for row in compared(table):
        assert row.measured_peak is not None
        assert row.peak_interval is not None
        low, high = row.peak_interval
        hits.append(low <= row.measured_peak <= high)
    assert mean(hits) >= 0.8


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_published_runs_fit_their_devices(every: int) -> None:
    """They ran. Where a plan is predicted not to fit, the source leaves out what it did."""
    misfits: Counter[tuple[str, str]] = Counter()
    for path in TABLES.values():
        for row in read_table(path)[::every]:
            try:
                case = build_case(parse_row(row))
            except RowSkipped:
                continue
            if case.job.software.id not in ("mpt-fsdp-2023", "megatron-te-2025", "torchtitan"):
                continue
            if max(simulate(case.job, case.plan).peak_allocated) > case.job.usable_memory:
                misfits[path.stem, case.job.software.id] += 1
    assert misfits == {}
