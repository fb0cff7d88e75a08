"""The figures behind prediction intervals, from the errors of measured runs.

What makes some plans harder than others (`scale.py`), quantiles of the errors in units of
that scale per device and software (`groups.py`), the growth of errors with the distance
between runs (a variogram), and what is lost where nobody described the software: the same runs
predicted as if it were so. What else may be new is in `novelty.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil, exp, log
from pathlib import Path

import numpy as np

from parsim.cost.job import Job
from parsim.cost.software import GENERIC, software
from parsim.errors import PlanError
from parsim.fitting.intervals.groups import groups, keyed
from parsim.fitting.intervals.memory import memory_groups, memory_reach
from parsim.fitting.intervals.reach import reach
from parsim.fitting.intervals.residuals import (
    LEAST_HALF,
    Residual,
    weighted_quantile,
    weights,
)
from parsim.fitting.intervals.scale import Observed, fit_scale
from parsim.sim import simulate
from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import (
    ADDED,
    ANY,
    CALIBRATED,
    COVERAGE,
    LEVELS,
    Errors,
    Group,
    MemoryGroup,
    stacks_of,
)
from parsim.validation.step.case import Case
from parsim.validation.tables import JUDGED_ALONE, refuse_blind
from parsim.validation.validate import Validation, validate
from parsim.validation.validated_row import ValidatedRow

PAIRS = 200
"""About so many runs, evenly spread, are predicted once more for what a change of the job adds."""


def residuals(tables: Iterable[Path]) -> list[Residual]:
    """Predict every run that states a step time."""
    return residuals_of(validate(list(tables)))


def residuals_of(validation: Validation) -> list[Residual]:
    """The errors of rows that are already predicted.

    Raises:
        TableError: a row is of a blind table.
    """
    refuse_blind(validation.tables)
    return _errors_of(row for row in validation.rows if row.table not in JUDGED_ALONE)


def site_runs(validation: Validation) -> list[Residual]:
    """The errors of the rows that say what a site adds, and of none that judges it."""
    refuse_blind(validation.tables)
    return _errors_of(
        row
        for row in validation.rows
        if row.table in JUDGED_ALONE and row.run is not None and row.run.split == "fit"
    )


def _errors_of(rows: Iterable[ValidatedRow]) -> list[Residual]:
    residuals = (_residual(row, row.predicted_step, row.measured_step) for row in rows)
    return [residual for residual in residuals if residual is not None]


def peaks_of(validation: Validation) -> list[Residual]:
    """The errors of peaks of memory, bytes for seconds; raises as `residuals_of` does."""
    refuse_blind(validation.tables)
    rows = (
        _residual(row, row.predicted_reserved or row.predicted_peak, row.measured_peak)
        for row in validation.rows
        if row.table not in JUDGED_ALONE
    )
    return [residual for residual in rows if residual is not None]


def _residual(
    row: ValidatedRow, predicted: float | None, measured: float | None
) -> Residual | None:
    case = row.case
    if not predicted or not measured or case is None or row.standing is None:
        return None
    # where a format is assumed, half the time or less may have been another's
    if isinstance(case, Case) and case.says_little:
        return None
    plan, model = case.plan, case.job.model
    cell = (row.table, model.name, model.border // model.tokens, plan.tp, plan.microbatch_size)
    return Residual(
        table=row.table,
        cell="/".join(map(str, cell)),
        error=log(measured / predicted),
        measured=measured,
        standing=row.standing,
        case=case,
    )


def gather_errors(
    runs: Sequence[Residual], reports: Iterable[Path] = (), peaks: Sequence[Residual] = ()
) -> Errors:
    """All figures of some runs, of the hardware suite's reports, and of measured peaks.

    The factors of levels are not among them: `novelty.py` computes those from these figures.
    """
    calibrated = keyed(calibrated_errors(reports))
    whole = Errors(
        groups={},
        factors=dict.fromkeys(LEVELS, 1.0),
        unknown_software=added(runs, as_generic),
        reach=0.0,
        memory_reach=memory_reach(peaks),
        memory={(group.software, group.recompute): group for group in memory_groups(peaks)},
    )
    gathered = figures(runs, whole)
    return replace(gathered, groups={**gathered.groups, **calibrated})


def figures(runs: Sequence[Residual], whole: Errors) -> Errors:
    """Scale, groups, models and reach of some runs; factors of levels are those of `whole`."""
    scale = fit_scale(_observed(runs))
    return replace(
        whole,
        groups=keyed(groups(runs, scale)),
        models=frozenset(run.standing.model for run in runs),
        stacks=stacks_of(run.software for run in runs),
        reach=reach(runs),
        weights=scale,
    )


def _observed(runs: Sequence[Residual]) -> Observed:
    return Observed.of(
        [run.standing.parts for run in runs],
        np.array([run.error for run in runs]),
        weights(runs),
        [f"{run.device} {run.software}" for run in runs],
    )


def added(runs: Sequence[Residual], changed: Callable[[Job], Job | None]) -> float:
    """What a change of the job adds to the half of an 80 % interval.

    sqrt of the growth of the squared 80 % quantile of |error|: a quantile, so that no single run
    decides.
    """
    kept, errors = [], []
    for run in runs[:: max(len(runs) // PAIRS, 1)]:
        job = changed(run.case.job)
        if job is not None:
            try:
                errors.append(log(run.measured / simulate(job, run.case.plan).step_time))
                kept.append(run)
            except PlanError:
                continue
    each = weights(kept)
    before, after = (
        weighted_quantile(np.abs(values), each, COVERAGE)
        for values in (np.array([run.error for run in kept]), np.array(errors))
    )
    return float(np.sqrt(max(after**2 - before**2, 0.0)))


def as_generic(job: Job) -> Job | None:
    """The job as if its software were unknown; attention stays what the run says."""
    return replace(job, software=software(GENERIC))


def calibrated_errors(reports: Iterable[Path]) -> list[Group]:
    """Errors of runs on calibrated machines, from the hardware suite's `report.json` files."""
    errors = [
        log(case["step_time_s"]["measured"] / case["step_time_s"]["predicted"])
        for path in reports
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]
        if case["counted"]
    ]
    if not errors:
        return []
    half = max(float(np.quantile(np.abs(errors), COVERAGE)), LEAST_HALF)
    return [Group(device=CALIBRATED, software=ANY, n=len(errors), half=half, ranges={})]


ROUNDING = 1e-3
"""By how much halves are widened: weights are rounded too, and the largest error of a small source
stays inside."""


def errors_text(errors: Errors) -> str:
    """What `interval.json` holds."""

    def rounded(group: Group | MemoryGroup) -> Mapping[str, object]:
        entry = asdict(group)
        return {**entry, "half": ceil(group.half * (1.0 + ROUNDING) * 1e4) / 1e4}

    document = {
        "schema_version": 5,
        "coverage": COVERAGE,
        "weights": {name: round(value, 4) for name, value in errors.weights.items()},
        **{name: round(getattr(errors, name), 4) for name in ADDED},
        "factors": {name: ceil(errors.factors[name] * 1e4) / 1e4 for name in LEVELS},
        "models": sorted(errors.models),
        "sites": sorted(errors.sites),
        "memory": [rounded(group) for group in errors.memory.values()],
        "groups": [rounded(group) for group in errors.groups.values()],
    }
    return json.dumps(document, indent=1) + "\n"


def covered(errors: Errors, run: Residual) -> bool:
    """Whether the run's measured time lies in its interval."""
    return step_interval(run.standing, 1.0, errors).covers(exp(run.error))
