"""Two timelines compared: values against hand counts, errors by formula, ranks matched, text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.comparison.timelines import compare_timelines
from parsim.errors import InputError
from parsim.timelines.timeline import Timeline
from parsim.units import GIB
from tests.parsim.report.text.measured.small_timelines import Pipeline, scaled, spans, timeline


def test_errors_are_signed_shares_of_the_measured_value() -> None:
    row = compare_timelines(timeline(0), timeline(0, slower=2.0)).row("optimizer_s", 0)
    assert (row.predicted, row.measured, row.difference, row.error) == (0.5, 1.0, -0.5, -0.5)


def test_there_is_no_error_where_nothing_is_measured_or_it_is_missing() -> None:
    bare = Timeline(spans=tuple(s for s in spans(0) if s.kind in ("F", "B")))
    comparison = compare_timelines(timeline(0), bare)
    zero = comparison.row("optimizer_s", 0)
    assert (zero.predicted, zero.measured, zero.error) == (0.5, 0.0, None)
    missing = comparison.row("peak_allocated_bytes", 0)
    assert (missing.measured, missing.difference, missing.error) == (None, None, None)
    kind = comparison.row("OPTIMIZER_mean_s")
    assert (kind.predicted, kind.measured, kind.error) == (0.5, None, None)


@given(
    p=st.integers(1, 4),
    m=st.integers(1, 6),
    factor=st.floats(0.1, 10.0),
    communication=st.booleans(),
)
def test_longer_times_give_exactly_that_error(
    p: int, m: int, factor: float, communication: bool
) -> None:
    from tests.parsim.report.conftest import lay_out

    first = lay_out(p, m, 1, communication=communication, memory=True)
    same = compare_timelines(first, first, tolerance=0.0)
    assert {row.error for row in same.rows} <= {0.0, None}
    assert same.within_tolerance
    assert {row.difference for row in same.rows} == {0.0}
    for row in compare_timelines(scaled(first, factor), first).rows:
        if row.error is not None:
            expected = factor - 1.0 if row.unit == "s" else 0.0
            assert row.error == pytest.approx(expected, abs=1e-6), row


@pytest.mark.parametrize(("factor", "error"), [(1.2, 0.2), (1 / 1.2, 1 / 1.2 - 1)])
def test_a_fifth_slower_or_faster(pipeline: Pipeline, factor: float, error: float) -> None:
    first = pipeline(4, 8, communication=True, memory=True)
    comparison = compare_timelines(scaled(first, factor), first, tolerance=0.1)
    assert comparison.row("step_time_s").error == pytest.approx(error, rel=1e-12)
    assert comparison.row("compute_s", 2).error == pytest.approx(error, rel=1e-12)
    assert not comparison.within_tolerance


def test_the_worst_of_step_time_and_peaks_is_named() -> None:
    comparison = compare_timelines(
        timeline(0, 1, slower=1.05, peak_allocated_bytes=[8.0 * GIB, 6.0 * GIB]), timeline(0, 1)
    )
    assert not comparison.within_tolerance
    assert comparison.headline == (
        "peak_allocated_bytes of rank 1: predicted 6.000 GiB, measured 8.000 GiB, error -25.0 %, "
        "is outside the tolerance of 10 %"
    )


def test_a_tolerance_is_kept_up_to_itself() -> None:
    pair = timeline(0, slower=1.25), timeline(0)
    assert compare_timelines(*pair, tolerance=0.25).within_tolerance
    assert not compare_timelines(*pair, tolerance=0.2499).within_tolerance
    assert compare_timelines(*pair, tolerance=0.3).headline == (
        "step_time_s: predicted 11.250 s, measured 9.000 s, error +25.0 %, "
        "is within the tolerance of 30 %"
    )


def test_other_quantities_are_not_judged() -> None:
    measured = Timeline(
        spans=tuple(s._replace(end=s.end - 0.25) if s.kind == "OPTIMIZER" else s for s in spans(0)),
        meta={"step_time_s": 9.0},
    )
    comparison = compare_timelines(timeline(0), measured, tolerance=0.0)
    assert comparison.row("optimizer_s", 0).error == 1.0
    assert comparison.within_tolerance


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_tolerance_that_is_none(tolerance: float) -> None:
    with pytest.raises(InputError) as caught:
        compare_timelines(timeline(0), timeline(0), tolerance=tolerance)
    assert str(caught.value) == (
        f"tolerance={tolerance} must be a finite share, at least 0; e.g. 0.1"
    )
