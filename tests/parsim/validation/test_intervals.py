"""The figures behind intervals: quantiles, what repeats, and coverage over the shipped runs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from math import exp

import numpy as np
import pytest

from parsim.sim.interval import ANY, CALIBRATED, read_errors, shipped_errors
from parsim.validation.compare import shipped_tables
from parsim.validation.intervals import (
    Residual,
    calibrated_groups,
    covered,
    errors_text,
    gather_errors,
    groups,
    half_width,
    quantile,
    reach,
    residuals,
)


@cache
def runs() -> tuple[Residual, ...]:
    """All rows but vTrain's composed ones."""
    return tuple(residuals(path for path in shipped_tables() if "single_node" not in path.stem))


def with_errors(values: list[float], cells: list[str] | None = None) -> list[Residual]:
    cells = cells or [str(i) for i in range(len(values))]
    return [
        replace(runs()[0], error=value, cell=cell)
        for value, cell in zip(values, cells, strict=True)
    ]


def test_quantiles_of_distinct_runs() -> None:
    made = with_errors([0.01 * i for i in range(-10, 11)])
    assert quantile(made, 0.5) == pytest.approx(0.0)
    assert quantile(made, 0.9) == pytest.approx(0.084, abs=0.002)
    assert quantile(list(reversed(made)), 0.1) == quantile(made, 0.1)


def test_a_cell_that_repeats_counts_as_the_root_of_its_runs() -> None:
    made = with_errors([0.0, *[0.2] * 16], ["a", *["b"] * 16])  # weights 1 and 4
    once = with_errors([0.0, 0.2, 0.2, 0.2, 0.2])
    assert quantile(made, 0.3) == pytest.approx(quantile(once, 0.3), abs=0.03)


def test_small_groups_lean_on_all_runs() -> None:
    many, few = with_errors([0.1, -0.1] * 200), with_errors([0.0] * 2)
    few = [replace(run, device="x", software="y") for run in few]
    found = {(g.device, g.software, g.bound): g for g in groups([*many, *few])}
    assert 0.01 < found["x", "y", ANY].high < found[ANY, ANY, ANY].high


def test_errors_that_grow_with_size_are_seen() -> None:
    def run(devices: float, error: float) -> Residual:
        return replace(runs()[0], error=error, sizes={"devices": devices}, cell=str(devices))

    grown = [run(2.0**i, 0.03 * i) for i in range(8)]
    assert reach(grown) == pytest.approx(0.03 / np.log(2.0) / 2**0.5, rel=0.05)
    assert reach([run(2.0**i, 0.01 * (-1) ** i) for i in range(8)]) < 0.005


def test_a_report_of_a_calibrated_machine(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "report.json"
    times = [
        {"counted": i < 11, "step_time_s": {"predicted": 1.0, "measured": exp(0.01 * (i - 5))}}
        for i in range(12)
    ]
    path.write_text(json.dumps({"cases": times}), encoding="utf-8")
    (found,) = calibrated_groups([path])
    assert (found.device, found.n) == (CALIBRATED, 11)
    assert (found.low, found.high) == pytest.approx((0.04, 0.04))


def test_the_file_is_read_as_it_was_written() -> None:
    errors = gather_errors(runs())
    again = read_errors(json.loads(errors_text(errors)))
    assert again.groups.keys() == errors.groups.keys()
    assert again.reach == pytest.approx(errors.reach, abs=1e-4)


def test_shipped_intervals_cover_what_they_say() -> None:
    errors = shipped_errors()
    inside = np.array([covered(errors, run) for run in runs()])
    assert 0.75 <= inside.mean() <= 0.88
    widths = np.array([half_width(errors, run) for run in runs()])
    off = np.array([abs(exp(-run.error) - 1.0) for run in runs()])
    assert np.median(widths) <= 2.5 * np.median(off)
