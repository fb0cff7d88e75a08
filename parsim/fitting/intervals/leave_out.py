"""Do intervals hold for a source that they have not seen, under constants fitted again without it?

For `make ablation`, which fits each family again without each of its sources. What is cheap enough
to be done at every `make reports` is in `novelty.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import exp

from parsim.fitting.constants.fit import Rows, Values
from parsim.fitting.constants.influence import RowKey, row_key
from parsim.fitting.constants.leave_out import Judge
from parsim.fitting.constants.source_cases import SourceCases
from parsim.fitting.intervals.novelty import without
from parsim.fitting.intervals.residuals import Residual
from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import Errors
from parsim.validation.coverage import Coverage, coverage
from parsim.validation.step.case import Case


def refitted(runs: Sequence[Residual], whole: Errors) -> Judge:
    """Judges the intervals of a source whose constants and figures have not seen its rows."""
    return partial(_refitted, runs, whole)


def _refitted(
    runs: Sequence[Residual],
    whole: Errors,
    left: SourceCases,
    family: Sequence[SourceCases],
    values: Values,
) -> Coverage:
    """Errors of the family's rows are those by `values`; other runs keep theirs."""
    moved: dict[RowKey | None, float] = {
        row_key(case): -float(error)
        for source in family
        for case, error in zip(source.cases, Rows(source.cases).errors(values), strict=True)
    }
    again = [replace(run, error=moved.get(_key(run), run.error)) for run in runs]
    left_keys = {row_key(case) for case in left.cases}
    errors = without(whole, [run for run in again if _key(run) not in left_keys])
    judged = []
    for run in again:
        if _key(run) in left_keys:
            interval = step_interval(run.standing, 1.0, errors)
            judged.append((1.0, exp(run.error), (interval.low, interval.high)))
    return coverage(judged)


def _key(run: Residual) -> RowKey | None:
    return row_key(run.case) if isinstance(run.case, Case) else None
