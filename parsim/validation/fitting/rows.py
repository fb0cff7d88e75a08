"""The measured rows of a source, and which of the shipped rows the constants were fitted to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from parsim.errors import PlanError
from parsim.plan.rules import check_plan
from parsim.validation.build import Case, build_case
from parsim.validation.compare import shipped_tables
from parsim.validation.comparison import Comparison
from parsim.validation.fitting.families import Family, Source, families
from parsim.validation.known_models import is_mixture
from parsim.validation.schema import RowSkipped, parse_row, read_table

RowKey = tuple[str, str, float]
"""Table, row_id and measured seconds: a row of another file of the same name is another row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCases:
    """The predictable rows of a source with a step time; `used` by the fit or not."""

    source: Source
    cases: tuple[Case, ...]
    used: tuple[bool, ...]

    @property
    def fitted(self) -> list[Case]:
        """The rows that the fit uses."""
        return [case for case, used in zip(self.cases, self.used, strict=True) if used]


def load(family: Family) -> list[SourceCases]:
    """Every source of a family; a source whose rows are all skipped has no cases."""
    return [load_source(source) for source in family.sources]


def load_source(source: Source) -> SourceCases:
    """One source's predictable rows."""
    rows = source_rows(source)
    kept = []
    for row, used in zip(rows, source.used(rows), strict=True):
        case = _case(row) if is_mixture(row) == source.mixtures else None
        if case is not None:
            kept.append((case, used))
    return SourceCases(
        source=source, cases=tuple(case for case, _ in kept), used=tuple(used for _, used in kept)
    )


def source_rows(source: Source) -> list[dict[str, str]]:
    """Rows of the shipped table that belong to a source, in file order."""
    return [row for row in _table(source.table) if source.has(row)]


@cache
def _table(name: str) -> list[dict[str, str]]:
    (path,) = [path for path in shipped_tables() if path.stem == name]
    return read_table(path)


def _case(row: dict[str, str]) -> Case | None:
    """A row as a case; None where validation skips it or it has no step time."""
    try:
        run = parse_row(row)
        case = build_case(run)
        check_plan(case.plan, case.job.model, case.job.cluster)
    except (RowSkipped, PlanError):
        return None
    return case if run.step_time else None


@cache
def fitted_rows() -> dict[RowKey, str]:
    """Every shipped row that some fit uses -> the family that uses it."""
    return {
        (source.table, row["row_id"], float(row["step_time_s"])): family.name
        for family in families()
        for source in family.sources
        for row in _used(source)
        if row["step_time_s"]
    }


def _used(source: Source) -> Iterable[dict[str, str]]:
    rows = source_rows(source)
    chosen = zip(rows, source.used(rows), strict=True)
    return (row for row, used in chosen if used and is_mixture(row) == source.mixtures)


def is_fitted(row: Comparison) -> bool:
    """Whether a compared row is one that the constants were fitted to."""
    return (row.table, row.row_id, row.measured_step or 0.0) in fitted_rows()


@cache
def cells() -> dict[tuple[str, str], str]:
    """(table, row_id) -> configuration cell, of the shipped tables whose rows repeat few cells."""
    return {
        (source.table, row["row_id"]): ", ".join(f"{name} {row[name]}" for name in source.of)
        for family in families()
        for source in family.sources
        if source.of
        for row in source_rows(source)
    }
