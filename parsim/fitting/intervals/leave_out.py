"""Do intervals hold for a source that they have not seen? Each source left out once.

The scale and the groups' quantiles are computed again from the other sources' runs, and the runs of
the one left out are judged by them. What predicts the runs stays: a source whose constants were
fitted with its own rows is predicted better than a new one would be, and `unknown_device`,
`unknown_software` and `unseen_software` are those of all runs. `refitted` judges by constants that
have not seen the source either (`leave_out.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import exp

from parsim.fitting.constants.fit import Rows, Values
from parsim.fitting.constants.leave_out import Judge
from parsim.fitting.constants.source_cases import SourceCases
from parsim.fitting.intervals.figures import figures
from parsim.fitting.intervals.groups import Residual
from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import CALIBRATED, Errors
from parsim.validation.coverage import Coverage, coverage
from parsim.validation.step.case import Case

Judged = tuple[float, float, tuple[float, float]]


def leave_sources_out(runs: Sequence[Residual], whole: Errors) -> dict[str | None, Coverage]:
    """Coverage of each table by figures without it; None: of all rows, each so judged."""
    tables = list(dict.fromkeys(run.table for run in runs))
    judged = {
        table: _judged([run for run in runs if run.table == table], without(runs, table, whole))
        for table in tables
    }
    everything = [row for rows in judged.values() for row in rows]
    return {
        **{table: coverage(rows) for table, rows in judged.items()},
        None: coverage(everything),
    }


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
    moved = {
        _key(case): -float(error)
        for source in family
        for case, error in zip(source.cases, Rows(source.cases).errors(values), strict=True)
    }
    again = [replace(run, error=moved.get(_key(run.case), run.error)) for run in runs]
    left_keys = {_key(case) for case in left.cases}
    errors = _with_calibrated([run for run in again if _key(run.case) not in left_keys], whole)
    return coverage(_judged([run for run in again if _key(run.case) in left_keys], errors))


def _key(case: Case) -> tuple[str, float | None]:
    return case.run.row_id, case.run.step_time


def _judged(runs: Sequence[Residual], errors: Errors) -> list[Judged]:
    """(predicted, measured, interval) of runs, per predicted second."""
    judged = []
    for run in runs:
        interval = step_interval(run.standing, 1.0, errors)
        judged.append((1.0, exp(run.error), (interval.low, interval.high)))
    return judged


def without(runs: Sequence[Residual], table: str, whole: Errors) -> Errors:
    """The figures of all other tables."""
    return _with_calibrated([run for run in runs if run.table != table], whole)


def _with_calibrated(runs: Sequence[Residual], whole: Errors) -> Errors:
    """The figures of some runs; those of calibrated machines are of none of them."""
    calibrated = {key: group for key, group in whole.groups.items() if key[0] == CALIBRATED}
    errors = figures(runs, whole)
    return replace(errors, groups={**errors.groups, **calibrated})
