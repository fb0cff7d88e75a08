"""Rows of actions as PyTorch's CSV: a line per rank, a cell per action."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action


def write_rows(rows: Iterable[Iterable[Action]]) -> str:
    """The rows as text."""
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def read_rows(text: str, name: str = "csv") -> list[dict[int, Action]]:
    """The actions of each line by the numbers of their cells; empty cells (idle steps) are skipped.

    Raises:
        ScheduleError: a cell is no action, or the text is no CSV.
    """
    lines = enumerate(_csv_rows(text, name), 1)
    return [dict(_cells(row, f"{name}:{line}")) for line, row in lines]


def _csv_rows(text: str, name: str) -> list[list[str]]:
    """The cells of each line, without empty lines at the end."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise ScheduleError(f"{name}: cannot be read as CSV: {error}") from None
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    return rows


def _cells(row: Sequence[str], where: str) -> Iterator[tuple[int, Action]]:
    """Each action of a line with the number of its cell."""
    for number, cell in enumerate(row, 1):
        if not cell.strip():
            continue
        try:
            yield number, Action.parse(cell)
        except ScheduleError as error:
            raise ScheduleError(f"{where}, cell {number}: {error}") from None
