"""Do intervals hold for a source that they have not seen? Each source left out once.

The scale and the groups' quantiles are computed again from the other sources' runs, and the runs of
the one left out are judged by them. What predicts the runs stays: a source whose constants were
fitted with its own rows is predicted better than a new one would be, and `unknown_device`,
`unknown_software` and `unseen_software` are those of all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from parsim.sim.interval import step_interval
from parsim.sim.known_errors import CALIBRATED, Errors
from parsim.validation.coverage import Coverage, coverage
from parsim.validation.interval_groups import Residual
from parsim.validation.intervals import figures

Judged = tuple[float, float, tuple[float, float]]


def leave_sources_out(runs: Sequence[Residual], whole: Errors) -> dict[str | None, Coverage]:
    """Coverage of each table by figures without it; None: of all rows, each so judged."""
    tables = list(dict.fromkeys(run.table for run in runs))
    judged = {table: _judged(runs, table, whole) for table in tables}
    everything = [row for rows in judged.values() for row in rows]
    return {
        **{table: coverage(rows) for table, rows in judged.items()},
        None: coverage(everything),
    }


def _judged(runs: Sequence[Residual], table: str, whole: Errors) -> list[Judged]:
    """(predicted, measured, interval) of the table's runs, per predicted second."""
    errors = without(runs, table, whole)
    found = []
    for run in runs:
        if run.table == table:
            interval = step_interval(run.standing, 1.0, errors)
            found.append((1.0, exp(run.error), (interval.low, interval.high)))
    return found


def without(runs: Sequence[Residual], table: str, whole: Errors) -> Errors:
    """The figures of all other tables."""
    calibrated = {key: one for key, one in whole.groups.items() if key[0] == CALIBRATED}
    again = figures([run for run in runs if run.table != table], whole)
    return replace(again, groups={**again.groups, **calibrated})
