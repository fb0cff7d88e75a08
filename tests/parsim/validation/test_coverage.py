"""Coverage of intervals that have not seen a table: shipped figures, and their text."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from parsim.fitting.intervals.figures import residuals_of
from parsim.fitting.intervals.leave_out import leave_sources_out
from parsim.sim.confidence.known_errors import shipped_errors
from parsim.validation.coverage import left_out_text, read_left_out, shipped_left_out
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate


def test_the_text_is_read_back_to_the_bit() -> None:
    left_out = shipped_left_out()
    assert read_left_out(left_out_text(left_out)) == left_out


def test_every_shipped_table_is_left_out_once() -> None:
    left_out = shipped_left_out()
    tables = [path.stem for path in shipped_tables()]
    assert list(left_out) == [*(table for table in tables if table in left_out), None]
    everything = left_out[None]
    assert everything.n == sum(judged.n for table, judged in left_out.items() if table)
    assert everything.covered is not None
    assert everything.covered > 0.8


@pytest.mark.slow
def test_shipped_figures_are_those_of_the_shipped_tables() -> None:
    now = leave_sources_out(residuals_of(validate(shipped_tables())), shipped_errors())
    shipped = shipped_left_out()
    assert list(shipped) == list(now)
    for table, coverage in shipped.items():
        assert asdict(coverage) == pytest.approx(asdict(now[table]), abs=2e-4), "run `make reports`"
