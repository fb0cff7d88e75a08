"""Typed access to the cells of one row of a table: what a blank, a word or an impossible one is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parsim.errors import shown
from parsim.validation.tables import RowSkipped

LEAST_MEASURED, MOST_MEASURED = 1e-15, 1e15
"""Between these is every time, rate and size that somebody measured, in any unit in use."""
LARGEST = 10**9
"""No count of a run, a network or a kernel is larger; a typing mistake is."""


def publisher_of(source: str) -> str:
    """Who published a row: the first word of its source, a repository's owner or a first author."""
    return re.split(r"[/ ,]", source.strip(), maxsplit=1)[0]


class Cells:
    """One row's text by column; a column that a table lacks is blank."""

    def __init__(self, row: Mapping[str, str]) -> None:
        self.row = row

    def text(self, name: str) -> str | None:
        """Text of a cell; None where it is blank."""
        return self.row.get(name, "") or None

    def stated(self, name: str) -> str:
        """Text of a cell without which the row cannot be used."""
        cell = self.text(name)
        if cell is None:
            raise RowSkipped(f"{name} is not stated{self.why_blank(name)}")
        return cell

    def why_blank(self, name: str) -> str:
        """What a message adds where a cell that is needed is blank."""
        return ""

    def any_number(self, name: str) -> float | None:
        """A number of any size; None where the cell is blank."""
        cell = self.text(name)
        try:
            return None if cell is None else float(cell)
        except ValueError:
            raise RowSkipped(f"{name}='{shown(cell)}' is not a number") from None

    def number(self, name: str) -> float | None:
        """Something measured, which is above 0; None where the cell is blank."""
        value = self.any_number(name)
        if value is not None and not LEAST_MEASURED <= value <= MOST_MEASURED:
            raise RowSkipped(
                f"{name}='{shown(self.row[name])}' must be a number from {LEAST_MEASURED:g} to "
                f"{MOST_MEASURED:g}"
            )
        return value

    def rounded(self, name: str) -> float | None:
        """Something measured; None where the cell is blank, or 0 and so rounded to nothing."""
        return None if self.any_number(name) == 0.0 else self.number(name)

    def needed(self, name: str) -> float:
        """Something measured, without which the row cannot be used."""
        self.stated(name)
        return self.number(name) or 0.0

    def integer(self, name: str, *, most: int = LARGEST) -> int | None:
        """A count from 0 on; None where the cell is blank."""
        cell = self.text(name)
        if cell is None:
            return None
        try:
            value = float(cell)
        except ValueError:
            raise RowSkipped(f"{name}='{shown(cell)}' is not a whole number") from None
        if not value.is_integer() or not 0 <= value <= most:
            raise RowSkipped(f"{name}='{shown(cell)}' is not a whole number from 0 to {most:,}")
        return int(value)

    def positive(self, name: str, *, most: int = LARGEST) -> int | None:
        """A count from 1 on; None where the cell is blank."""
        value = self.integer(name, most=most)
        if value == 0:
            raise RowSkipped(f"{name}=0 must be at least 1")
        return value

    def need(self, name: str, *, most: int = LARGEST) -> int:
        """A count from 1 on, without which the row cannot be used."""
        self.stated(name)
        return self.positive(name, most=most) or 0
