"""What came of each case: one flat row, as it is printed, drawn and written to CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from parsim.errors import InputError
from parsim.files import read_text
from parsim.results import Result
from parsim.units import format_seconds

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case: the values that tell it from others, and its plan's numbers.

    Where the case cannot be, or its plan is too large, `error` says why; numbers that it does not
    have are nan. `digest` tells whether a row of an earlier run is of the same case.
    """

    values: Mapping[str, str]
    digest: str
    plan: str = ""
    devices: int = 0
    step_time_s: float = float("nan")
    step_time_low_s: float = float("nan")
    step_time_high_s: float = float("nan")
    tokens_per_s: float = float("nan")
    mfu: float = float("nan")
    bubble_fraction: float = float("nan")
    exposed_communication_s: float = float("nan")
    peak_allocated_bytes: float = float("nan")
    memory_fit: str = ""
    days: float = float("nan")
    cost_usd: float = float("nan")
    energy_kwh: float = float("nan")
    error: str = ""

    def record(self) -> dict[str, Any]:
        """A flat row: values first, missing numbers as None."""
        row = {name: x for name, x in asdict(self).items() if name != "values"}
        numbers = {name: None if x != x else x for name, x in row.items()}
        return {**self.values, **numbers}


NUMBERS = tuple(field.name for field in fields(Outcome) if field.name != "values")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcomes(Result):
    """All cases in their order; `keys` are the fields that tell them apart.

    `total` is how many cases were asked for, more than there are rows where it was interrupted.
    """

    rows: tuple[Outcome, ...]
    keys: tuple[str, ...]
    total: int

    @property
    def fastest(self) -> Outcome | None:
        """The case with the most tokens a second."""
        done = [row for row in self.rows if not row.error]
        return max(done, key=lambda row: row.tokens_per_s, default=None)

    @property
    def headline(self) -> str:
        """How many cases, and the fastest."""
        best = self.fastest
        if best is None:
            return f"{len(self.rows)} cases, none of which can be"
        words = ", ".join(f"{key}={value}" for key, value in best.values.items())
        return f"{len(self.rows)} cases; fastest {words}: {format_seconds(best.step_time_s)}"

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim sweep --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "keys": list(self.keys),
            "cases": self.total,
            "rows": [row.record() for row in self.rows],
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per case."""
        return [row.record() for row in self.rows]


def csv_rows(rows: Sequence[Outcome], keys: Sequence[str]) -> list[list[str]]:
    """Header and rows as text; numbers so that they read as the same."""
    table = [[*keys, *NUMBERS]]
    for row in rows:
        record = row.record()
        cells = ("" if record[name] is None else str(record[name]) for name in NUMBERS)
        table.append([*(row.values[key] for key in keys), *cells])
    return table


def read_outcomes(path: Path, keys: Sequence[str]) -> dict[str, Outcome]:
    """Rows of an earlier run by their digest.

    Raises:
        InputError: the file is another table.
    """
    lines = list(csv.reader(read_text(path).splitlines()))
    if not lines or lines[0] != [*keys, *NUMBERS]:
        raise InputError(
            f"{path}: is no table of this sweep (its columns would be {', '.join(keys)}, "
            f"{NUMBERS[0]}, ...); give another file, or take it away"
        )
    try:
        rows = [_outcome(cells, keys) for cells in lines[1:]]
    except (ValueError, IndexError, KeyError):
        raise InputError(f"{path}: a row is broken; take it away") from None
    return {row.digest: row for row in rows}


def _outcome(cells: Sequence[str], keys: Sequence[str]) -> Outcome:
    """A row that was written by `csv_rows`."""
    values = dict(zip(keys, cells[: len(keys)], strict=True))
    numbers: dict[str, Any] = dict(zip(NUMBERS, cells[len(keys) :], strict=True))
    for field in fields(Outcome):
        if field.type == "float":
            numbers[field.name] = float(numbers[field.name] or "nan")
    numbers["devices"] = int(numbers["devices"])
    return Outcome(values=values, **numbers)
