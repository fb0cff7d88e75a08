"""The figures behind prediction intervals, from the errors of measured runs.

Quantiles of log(measured / predicted) per device and software, the growth of errors with the
distance between runs (a variogram), and what is lost where a device or a software was never
measured: the same runs predicted as if it were so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import exp, log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import GENERIC, software
from parsim.errors import PlanError
from parsim.sim import simulate
from parsim.sim.interval import (
    ANY,
    CALIBRATED,
    COVERAGE,
    Errors,
    Group,
    Sizes,
    bound_of,
    sizes_of,
    step_interval,
)
from parsim.validation.build import Case, build_case
from parsim.validation.schema import RowSkipped, parse_row, read_table

SHRINK = 5.0
"""A group of so many runs counts half, the larger group around it the other half."""
LEAST = 0.01
"""No half of an interval is narrower: repeats of a step scatter by a percent."""
NEAREST_RELATIVE = {"a100": "h100-sxm-80gb", "h100": "a100-sxm-80gb", "b200": "h100-sxm-80gb"}
"""Whose efficiencies a chip would have got, had nobody measured it."""
Key = tuple[str, str, str]
Bounds = tuple[float, float]
PAIRS = 200
"""About so many runs, evenly spread, are predicted once more for what a change of the job adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One run: log(measured / predicted), measured seconds, sizes, and the predicted case.

    `cell` names what repeats: runs of one cell (a model under one tensor-parallel degree and
    micro-batch) count together as one, as tables repeat some cells a hundred times.
    """

    table: str
    cell: str
    device: str
    software: str
    bound: str
    error: float
    measured: float
    sizes: Sizes
    case: Case


def residuals(tables: Iterable[Path]) -> list[Residual]:
    """Predict every run that states a step time."""
    found = []
    for table in tables:
        for row in read_table(table):
            try:
                case = build_case(parse_row(row))
                if case.run.step_time is not None:
                    found.append(_residual(table.stem, case, case.run.step_time))
            except (RowSkipped, PlanError):
                continue
    return found


def _residual(table: str, case: Case, measured: float) -> Residual:
    plan, job = case.plan, case.job
    cell = f"{table}/{job.model.name}/{job.model.hidden_size}/{plan.tp}/{plan.microbatch_size}"
    return Residual(
        table=table,
        cell=cell,
        device=job.device.id,
        software=job.practice,
        bound=bound_of(job, plan),
        error=_log_error(case, job, measured),
        measured=measured,
        sizes=sizes_of(job, plan),
        case=case,
    )


def _log_error(case: Case, job: Job, measured: float) -> float:
    return log(measured / simulate(job, case.plan).step_time)


def weights(runs: Sequence[Residual]) -> NDArray[np.float64]:
    """Each cell counts as the square root of its runs, shared among them."""
    _, back, counts = np.unique([run.cell for run in runs], return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(counts[back]))


def quantile(runs: Sequence[Residual], share: float) -> float:
    """Weighted quantile of the errors, between neighbours linear."""
    errors, each = np.array([run.error for run in runs]), weights(runs)
    order = np.argsort(errors)
    at = (np.cumsum(each[order]) - 0.5 * each[order]) / each.sum()
    return float(np.interp(share, at, errors[order]))


def _bounds(runs: Sequence[Residual]) -> Bounds:
    tail = (1.0 - COVERAGE) / 2.0
    return max(-quantile(runs, tail), LEAST), max(quantile(runs, 1.0 - tail), LEAST)


def _group(key: Key, runs: Sequence[Residual], usual: Bounds) -> Group:
    own = float(weights(runs).sum())
    low, high = (
        max(mine, (own * mine + SHRINK * theirs) / (own + SHRINK))
        for mine, theirs in zip(_bounds(runs), usual, strict=True)
    )
    device, name, bound = key
    ranges = {
        size: (min(run.sizes[size] for run in runs), max(run.sizes[size] for run in runs))
        for size in runs[0].sizes
    }
    return Group(
        device=device,
        software=name,
        bound=bound,
        n=len(runs),
        low=low,
        high=high,
        ranges=ranges,
    )


def groups(runs: Sequence[Residual]) -> list[Group]:
    """All runs, then per device, per software, per both, and these by what they wait for.

    Small groups lean on the usual bounds, the median over devices and software, where their own
    are narrower: few runs see few of the errors there are.
    """
    both = _by(runs, lambda run: (run.device, run.software, ANY))
    each = np.array([_bounds(members) for _, members in both])
    usual = (float(np.median(each[:, 0])), float(np.median(each[:, 1])))
    found = [
        *_by(runs, lambda run: (ANY, ANY, ANY)),
        *_by(runs, lambda run: (run.device, ANY, ANY)),
        *_by(runs, lambda run: (ANY, run.software, ANY)),
        *both,
        *_by(runs, lambda run: (run.device, run.software, run.bound)),
    ]
    return [_group(key, members, usual) for key, members in found]


def _by(
    runs: Sequence[Residual], key: Callable[[Residual], Key]
) -> list[tuple[Key, list[Residual]]]:
    found: dict[Key, list[Residual]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return sorted(found.items())


def reach(runs: Sequence[Residual]) -> float:
    """Log error per factor e of distance: sqrt of w in (e_i - e_j)^2 / 2 = c + w d^2.

    e and d between cells of one device and software; w is the mean over devices and software of
    the slopes, none counted below 0.
    """
    slopes = []
    for _, members in _by(runs, lambda run: (run.device, run.software, ANY)):
        cells = [_cell(group) for _, group in _by(members, lambda run: (run.cell, ANY, ANY))]
        if len(cells) > 2:
            slopes.append(max(_slope(cells), 0.0))
    return float(np.sqrt(np.mean(slopes))) if slopes else 0.0


Cell = tuple[float, NDArray[np.float64]]


def _cell(runs: Sequence[Residual]) -> Cell:
    """Mean error of a cell, and the mean of its sizes' logarithms."""
    logs = np.log([list(run.sizes.values()) for run in runs])
    return float(np.mean([run.error for run in runs])), logs.mean(axis=0)


def _slope(cells: Sequence[Cell]) -> float:
    pairs = list(combinations(cells, 2))
    distances = np.array([float(np.sum((a[1] - b[1]) ** 2)) for a, b in pairs])
    squares = np.minimum([0.5 * (a[0] - b[0]) ** 2 for a, b in pairs], 0.02)
    spread = float(distances.var())
    both = float(((distances - distances.mean()) * (squares - squares.mean())).mean())
    return both / spread if spread > 0.0 else 0.0


def added(runs: Sequence[Residual], changed: Callable[[Job], Job | None]) -> float:
    """What a change of the job adds to the log errors: sqrt of the growth of their mean square.

    Squares are cut at 0.25 (an error of 65 %) so that no single run decides.
    """
    pairs = []
    for run in runs[:: max(len(runs) // PAIRS, 1)]:
        job = changed(run.case.job)
        if job is not None:
            try:
                pairs.append((run.error, _log_error(run.case, job, run.measured)))
            except PlanError:
                continue
    squares = np.minimum(np.array(pairs, dtype=np.float64) ** 2, 0.25).mean(axis=0)
    return float(np.sqrt(max(squares[1] - squares[0], 0.0)))


def as_generic(job: Job) -> Job | None:
    """The job as if its software were unknown; attention stays what the run says."""
    return replace(job, software=software(GENERIC))


def as_relative(job: Job) -> Job | None:
    """The job as if its device's efficiencies were those of the nearest other chip."""
    relative = NEAREST_RELATIVE.get(job.device.id.split("-")[0])
    if relative is None:
        return None
    other = load_catalog().devices[relative]
    names = [
        name
        for name in job.device.__slots__
        if name.endswith(("_efficiency", "_sustained")) and isinstance(getattr(other, name), float)
    ]
    device = replace(job.device, **{name: getattr(other, name) for name in names})
    return replace(job, cluster=replace(job.cluster, system=replace(job.system, device=device)))


def calibrated_groups(reports: Iterable[Path]) -> list[Group]:
    """Errors of runs on calibrated machines, from the hardware suite's `report.json` files."""
    errors = [
        log(case["step_time_s"]["measured"] / case["step_time_s"]["predicted"])
        for path in reports
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]
        if case["counted"]
    ]
    if not errors:
        return []
    tail = (1.0 - COVERAGE) / 2.0
    low, high = (float(np.quantile(errors, share)) for share in (tail, 1.0 - tail))
    return [
        Group(
            device=CALIBRATED,
            software=ANY,
            n=len(errors),
            low=max(-low, LEAST),
            high=max(high, LEAST),
            ranges={},
        )
    ]


def gather_errors(runs: Sequence[Residual], reports: Iterable[Path] = ()) -> Errors:
    """All figures of some runs, and of the hardware suite's reports."""
    found = [*groups(runs), *calibrated_groups(reports)]
    return Errors(
        groups={(group.device, group.software, group.bound): group for group in found},
        unknown_device=added(runs, as_relative),
        unknown_software=added(runs, as_generic),
        reach=reach(runs),
    )


def errors_text(errors: Errors) -> str:
    """What `interval.json` holds."""

    def rounded(group: Group) -> Mapping[str, object]:
        entry = asdict(group)
        return {**entry, "low": round(group.low, 4), "high": round(group.high, 4)}

    document = {
        "schema_version": 1,
        "coverage": COVERAGE,
        "unknown_device": round(errors.unknown_device, 4),
        "unknown_software": round(errors.unknown_software, 4),
        "reach": round(errors.reach, 4),
        "groups": [rounded(group) for group in errors.groups.values()],
    }
    return json.dumps(document, indent=1) + "\n"


def half_width(errors: Errors, run: Residual) -> float:
    """Half of the interval's width over the prediction."""
    found = step_interval(run.case.job, run.case.plan, 1.0, bound=run.bound, errors=errors)
    return 0.5 * (found.high - found.low)


def covered(errors: Errors, run: Residual) -> bool:
    """Whether the run's measured time lies in its interval."""
    found = step_interval(run.case.job, run.case.plan, 1.0, bound=run.bound, errors=errors)
    return found.covers(exp(run.error))
