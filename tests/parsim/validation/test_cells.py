"""Cells of a row as numbers: one set of limits and wordings for every table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parsim.validation.cells import Cells
from parsim.validation.tables import RowSkipped

MEASURED = "must be a number from 1e-15 to 1e+15"
COUNT = "is not a whole number from 0 to 1,000,000,000"


@pytest.mark.parametrize(
    ("read", "cell", "message"),
    [
        (Cells.number, "fast", "x='fast' is not a number"),
        (Cells.number, "0", f"x='0' {MEASURED}"),
        (Cells.number, "nan", f"x='nan' {MEASURED}"),
        (Cells.rounded, "-1", f"x='-1' {MEASURED}"),
        (Cells.needed, "", "x is not stated"),
        (Cells.needed, "1e300", f"x='1e300' {MEASURED}"),
        (Cells.integer, "many", "x='many' is not a whole number"),
        (Cells.integer, "1.5", f"x='1.5' {COUNT}"),
        (Cells.integer, "inf", f"x='inf' {COUNT}"),
        (Cells.positive, "0", "x=0 must be at least 1"),
        (Cells.need, "", "x is not stated"),
        (Cells.need, "0", "x=0 must be at least 1"),
    ],
)
def test_what_is_refused(read: Callable[[Cells, str], object], cell: str, message: str) -> None:
    with pytest.raises(RowSkipped) as caught:
        read(Cells({"x": cell}), "x")
    assert str(caught.value) == message


def test_blanks_and_roundings() -> None:
    cells = Cells({"blank": "", "zero": "0.00", "count": "8.0", "time": "2.5e-3"})
    for name in ("blank", "no such column"):
        blank = (cells.text(name), cells.number(name), cells.integer(name), cells.positive(name))
        assert blank == (None, None, None, None)
    assert cells.rounded("zero") is None
    assert (cells.integer("zero"), cells.integer("count"), cells.need("count")) == (0, 8, 8)
    assert cells.number("time") == cells.rounded("time") == cells.needed("time") == 2.5e-3
