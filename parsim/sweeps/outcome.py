"""What came of each case: one flat row, as it is printed, drawn and written to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

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

    def cells(self, keys: Sequence[str]) -> list[Any]:
        """The values of the keys, then the `NUMBERS`, missing ones as None."""
        record = self.record()
        return [*(self.values[key] for key in keys), *(record[name] for name in NUMBERS)]


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
