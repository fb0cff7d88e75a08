"""Predict tables of measured runs and summarise the signed errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from statistics import mean
from typing import Any

from parsim.cost.job import EXPERTS
from parsim.sim.known_errors import Errors
from parsim.validation.compare_row import compare_row
from parsim.validation.comparison import Comparison
from parsim.validation.coverage import Coverage, coverage
from parsim.validation.ranking import Ranking, rank
from parsim.validation.schema import read_table
from parsim.validation.summary import Summary, summarise

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All rows of all tables, in order."""

    rows: tuple[Comparison, ...]

    def with_errors(self, errors: Errors) -> Validation:
        """All rows with their intervals by other figures."""
        return Validation(rows=tuple(row.with_errors(errors) for row in self.rows))

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in order."""
        return tuple(dict.fromkeys(row.table for row in self.rows))

    @property
    def stacks(self) -> list[str]:
        """Software stacks of the predicted rows."""
        return sorted({row.stack for row in self.rows if row.stack and not row.skipped})

    def of(self, table: str) -> tuple[Comparison, ...]:
        """Rows of one table."""
        return tuple(row for row in self.rows if row.table == table)

    def summary(self, table: str) -> Summary:
        """Step-time errors of one table; a row without a step time counts as skipped."""
        rows = self.of(table)
        errors = [row.error for row in rows if row.error is not None]
        return summarise(errors, len(rows) - len(errors))

    def by_kind(self, table: str) -> dict[str, Summary]:
        """Step-time errors of dense models and of mixtures of experts; empty without mixtures."""
        rows = [row for row in self.of(table) if row.error is not None]
        kinds = {
            "dense": [row.error for row in rows if not row.practice.endswith(EXPERTS)],
            "mixtures of experts": [row.error for row in rows if row.practice.endswith(EXPERTS)],
        }
        if not kinds["mixtures of experts"]:
            return {}
        return {
            f"{table}, {kind}": summarise([e for e in errors if e is not None], 0)
            for kind, errors in kinds.items()
        }

    def memory_summary(self, table: str) -> Summary:
        """Peak-memory errors of one table."""
        rows = self.of(table)
        errors = [row.memory_error for row in rows if row.memory_error is not None]
        return summarise(errors, len(rows) - len(errors))

    def ranking(self, table: str) -> Ranking:
        """Rank agreement and regret within the table's groups of plans.

        A plan that a table repeats (releases of the software) counts once, with its mean time.
        """
        plans: dict[tuple[tuple[str | int, ...], str], list[tuple[float, float]]] = {}
        for row in self.of(table):
            if row.predicted_step is not None and row.measured_step is not None:
                key = (row.decision, row.plan)
                plans.setdefault(key, []).append((row.predicted_step, row.measured_step))
        return rank(
            (decision, mean(p for p, _ in times), mean(m for _, m in times))
            for (decision, _), times in plans.items()
        )

    def coverage(self, table: str | None = None) -> Coverage:
        """Coverage of step intervals, of one table or of all."""
        return coverage(
            (row.predicted_step, row.measured_step, row.step_interval)
            for row in (self.rows if table is None else self.of(table))
            if row.predicted_step and row.measured_step and row.step_interval
        )

    def memory_coverage(self, table: str | None = None) -> Coverage:
        """Coverage of the intervals of peak memory."""
        return coverage(
            (row.predicted_reserved or row.predicted_peak, row.measured_peak, row.peak_interval)
            for row in (self.rows if table is None else self.of(table))
            if row.predicted_peak and row.measured_peak and row.peak_interval
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim validate --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "rows": [row.to_json() for row in self.rows],
            "summary": {table: self.summary(table).to_json() for table in self.tables},
            "memory_summary": {t: self.memory_summary(t).to_json() for t in self.tables},
            "ranking": {table: self.ranking(table).to_json() for table in self.tables},
            "intervals": {t: self.coverage(t).to_json() for t in self.tables},
            "memory_intervals": {t: self.memory_coverage(t).to_json() for t in self.tables},
        }


def validate(
    paths: Sequence[Path], *, progress: Callable[[int, int], None] | None = None
) -> Validation:
    """Predict every row of the tables; `progress` is called with (rows done, rows in all).

    Raises:
        TableError: a table cannot be read at all.
    """
    listed = [(name, row) for path, name in _names(paths).items() for row in read_table(path)]
    rows = []
    for done, (name, row) in enumerate(listed, start=1):
        rows.append(compare_row(name, row))
        if progress:
            progress(done, len(listed))
    return Validation(rows=tuple(rows))


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """A table is called after its file; two files of one name are told apart by their paths."""
    stems = Counter(path.stem for path in dict.fromkeys(paths))
    return {path: path.stem if stems[path.stem] == 1 else str(path) for path in paths}


def shipped_tables() -> list[Path]:
    """The public tables that come with parsim."""
    folder = files("parsim.validation") / "data"
    with as_file(folder) as path:
        return sorted(path.glob("*.csv"))
