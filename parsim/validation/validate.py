"""Predict tables of measured runs and summarise the signed errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from parsim.cost.job import EXPERTS
from parsim.errors import did_you_mean, shown
from parsim.results import RowsResult
from parsim.sim.confidence.known_errors import Errors
from parsim.validation.coverage import Coverage, Summary, coverage, summarise
from parsim.validation.predict_row import predict_row
from parsim.validation.ranking import Missed, PlanTimes, Ranking, missed, rank
from parsim.validation.step.row_reader import OPTIONAL as RUNS_OPTIONAL
from parsim.validation.step.row_reader import REQUIRED as RUNS
from parsim.validation.tables import Progress, check_columns, predict_tables, read_rows
from parsim.validation.validated_row import ValidatedRow
from parsim.validation.vision.measured_samples import OPTIONAL as SAMPLES_OPTIONAL
from parsim.validation.vision.measured_samples import REQUIRED as SAMPLES
from parsim.validation.vision.measured_samples import is_samples
from parsim.validation.vision.predict_samples import predict_samples


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV of measured runs as text cells.

    Raises:
        TableError: missing file, not text, empty, no rows, or columns missing.
    """
    return read_rows(path, _check_header)


def _check_header(path: Path, header: list[str]) -> None:
    check_columns(path, header, SAMPLES if is_samples(header) else RUNS)


SCHEMA_VERSION = 1

_RUN_COLUMNS = frozenset((*RUNS, *RUNS_OPTIONAL))
_SAMPLE_COLUMNS = frozenset((*SAMPLES, *SAMPLES_OPTIONAL))
MOST_UNREAD = 5
"""Unknown columns that a note lists."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Validation(RowsResult):
    """All rows of all tables, in order."""

    rows: tuple[ValidatedRow, ...]

    def with_errors(self, errors: Errors) -> Validation:
        """All rows with their intervals by other figures."""
        return Validation(rows=tuple(row.with_errors(errors) for row in self.rows))

    @property
    def headline(self) -> str:
        """How many rows, and how large their errors of step time are."""
        summary = step_errors(self.rows)
        if summary.median_abs_error is None or summary.max_abs_error is None:
            return f"{len(self.rows):,} rows, none with a measured step time"
        return (
            f"{summary.n:,} of {len(self.rows):,} rows, |error| of step time: median "
            f"{100 * summary.median_abs_error:.1f} %, max {100 * summary.max_abs_error:.1f} %"
        )

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in order."""
        return tuple(dict.fromkeys(row.table for row in self.rows))

    @property
    def rankings(self) -> dict[str, Ranking]:
        """Rank agreement of each table that has groups of plans, and of all where several have."""
        each = {name: self.ranking(name) for name in self.tables}
        each = {name: ranking for name, ranking in each.items() if ranking.groups}
        return {**each, "all": self.ranking()} if len(each) > 1 else each

    @property
    def stacks(self) -> dict[str, str]:
        """Software stacks of the predicted rows, and the software that their rows run under."""
        rows = [row for row in self.rows if row.stack and not row.skipped]
        return {row.stack: row.software for row in sorted(rows, key=lambda row: row.stack)}

    def of(self, table: str) -> tuple[ValidatedRow, ...]:
        """Rows of one table."""
        return tuple(row for row in self.rows if row.table == table)

    def summary(self, table: str) -> Summary:
        """Step-time errors of one table.

        A row without a step time counts as skipped, unless it states a speed-up instead.
        """
        return step_errors([row for row in self.of(table) if not row.states_speedup])

    def by_kind(self, table: str) -> dict[str, Summary]:
        """Step-time errors of dense models and of mixtures of experts; empty without both."""
        rows = [row for row in self.of(table) if row.error is not None]
        mixtures = [row for row in rows if row.practice.endswith(EXPERTS)]
        dense = [row for row in rows if not row.practice.endswith(EXPERTS)]
        if not (mixtures and dense):
            return {}
        kinds = {"dense": dense, "mixtures of experts": mixtures}
        return {f"{table}, {kind}": step_errors(alike) for kind, alike in kinds.items()}

    def memory_summary(self, table: str) -> Summary:
        """Peak-memory errors of one table."""
        rows = self.of(table)
        errors = [row.memory_error for row in rows if row.memory_error is not None]
        return summarise(errors, len(rows) - len(errors))

    def speedup_summary(self, table: str) -> Summary:
        """Errors of one table's speed-ups."""
        rows = [row for row in self.of(table) if row.states_speedup]
        errors = [row.speedup_error for row in rows if row.speedup_error is not None]
        return summarise(errors, len(rows) - len(errors))

    def ranking(self, table: str | None = None) -> Ranking:
        """Rank agreement and regret within groups of plans, of one table or of all.

        A plan that a table repeats (releases of the software) counts once, with its mean time.
        """
        return rank((d, each.predicted, each.measured) for d, each in self._choices(table))

    def missed(self) -> list[Missed]:
        """The decisions in which the plan predicted fastest is not the fastest, the worst first."""
        return missed(self._choices(None))

    def _choices(self, table: str | None) -> Iterator[tuple[tuple[str | int, ...], PlanTimes]]:
        """Each plan of each decision once."""
        plans: dict[tuple[tuple[str | int, ...], str], list[ValidatedRow]] = {}
        for row in self.rows if table is None else self.of(table):
            if row.predicted_step is not None and row.measured_step is not None:
                plans.setdefault(((row.table, *row.decision), row.plan), []).append(row)
        for (decision, label), rows in plans.items():
            predicted = mean(row.predicted_step or 0.0 for row in rows)
            measured = mean(row.measured_step or 0.0 for row in rows)
            yield decision, PlanTimes(label, predicted, measured, rows[0].step_interval)

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
            "rows": self.records(),
            "summary": {table: self.summary(table).to_json() for table in self.tables},
            "speedup_summary": {t: self.speedup_summary(t).to_json() for t in self.tables},
            "memory_summary": {t: self.memory_summary(t).to_json() for t in self.tables},
            "ranking": {table: self.ranking(table).to_json() for table in self.tables},
            "intervals": {t: self.coverage(t).to_json() for t in self.tables},
            "memory_intervals": {t: self.memory_coverage(t).to_json() for t in self.tables},
        }


def step_errors(rows: Sequence[ValidatedRow]) -> Summary:
    """Errors of step time; a row without one counts as skipped."""
    errors = [row.error for row in rows if row.error is not None]
    return summarise(errors, len(rows) - len(errors))


def validate(paths: Sequence[Path], *, progress: Progress | None = None) -> Validation:
    """Predict every row of the tables; `progress` is called with (rows done, rows in all).

    Raises:
        TableError: a table cannot be read at all.
    """
    return Validation(rows=predict_tables(paths, read_table, _predict, progress))


def _predict(table: str, row: dict[str, str]) -> ValidatedRow:
    """A row of either schema; its notes tell of columns that neither has."""
    predicted = predict_samples(table, row) if is_samples(row) else predict_row(table, row)
    unread = _unread(table, row)
    return replace(predicted, notes=(*predicted.notes, unread)) if unread else predicted


def _unread(table: str, columns: Mapping[str, str]) -> str:
    """What to say of columns that the schema does not have, mistyped ones too; or nothing."""
    known = _SAMPLE_COLUMNS if is_samples(columns) else _RUN_COLUMNS
    unknown = [column for column in columns if column and column not in known]
    if not unknown:
        return ""
    listed = [f"{shown(column)}{did_you_mean(column, known)}" for column in unknown[:MOST_UNREAD]]
    more = f" and {len(unknown) - MOST_UNREAD} more" if len(unknown) > MOST_UNREAD else ""
    return f"table {table}: unknown columns, which are not read: {', '.join(listed)}{more}"
