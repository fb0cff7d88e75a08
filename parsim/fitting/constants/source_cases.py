"""The measured rows of each source that a fit can predict, as cases."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.errors import PlanError
from parsim.fitting.constants.families import Family
from parsim.plan.rules.violation import check_plan
from parsim.validation.fitted_rows import Source, source_rows
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.known_models import is_mixture
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import RowSkipped


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


def _case(row: dict[str, str]) -> Case | None:
    """A row as a case; None where validation skips it or it has no step time."""
    try:
        run = parse_row(row)
        case = build_case(run)
        check_plan(case.plan, case.job.model, case.job.cluster)
    except (RowSkipped, PlanError):
        return None
    return case if run.step_time else None
