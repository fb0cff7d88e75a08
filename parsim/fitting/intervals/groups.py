"""Quantiles of scaled errors per device and software, and the growth of errors with distance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, log

import numpy as np

from parsim.arrays import Array
from parsim.sim.confidence.known_errors import (
    ANY,
    COVERAGE,
    Group,
    Key,
    Sizes,
    Standing,
    any_software,
    scale,
)
from parsim.validation.step.case import Case, PredictedCase
from parsim.validation.step.measured_run import MeasuredRun

Cell = tuple[float, Array]

SHRINK = 5.0
"""A group of so many independent runs counts half, the usual bounds the other half."""
LEAST_HALF = 0.01
"""No half of a calibrated interval is narrower: repeats of a step scatter by a percent."""
IRREGULAR = 1.25
"""A release whose time for a plan is so many times that of any other release's is no usual one:
plans that several releases ran differ by 3 % in the median and 10 % in nine of ten cases."""
SAME_PLAN = ("model", "precision", "n_gpus", "tp", "pp", "v", "dp", "cp", "ep", "zero_stage",
             "fsdp_size", "microbatch_size", "num_microbatches", "seq_len")  # fmt: skip
"""Columns in which two runs of one plan agree."""
LEAST_SCALED = 0.3
"""No half of a scaled interval is narrower; the scale is 0.03 at the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One run: log(measured / predicted), measured seconds, and the predicted case.

    `cell` names what repeats: runs of one cell (a model under one tensor-parallel degree and
    micro-batch) count together as the root of their number, and so do the cells of one table, as
    tables repeat some cells a hundred times, and one cluster and release all of its cells.
    """

    table: str
    cell: str
    error: float
    measured: float
    standing: Standing
    case: PredictedCase

    @property
    def run(self) -> MeasuredRun | None:
        """The row of a transformer; None of networks."""
        return self.case.run if isinstance(self.case, Case) else None

    @property
    def device(self) -> str:
        """Id of the device."""
        return self.standing.device

    @property
    def software(self) -> str:
        """Id of the software."""
        return self.standing.software

    @property
    def sizes(self) -> Sizes:
        """Sizes that say how far it is from others."""
        return self.standing.sizes


def weights(runs: Sequence[Residual]) -> Array:
    """Each cell counts as the root of its runs, each table as the root of its cells' sum."""
    _, cell, counts = np.unique([run.cell for run in runs], return_inverse=True, return_counts=True)
    each = 1.0 / np.sqrt(counts[cell])
    _, table = np.unique([run.table for run in runs], return_inverse=True)
    return np.asarray(each / np.sqrt(np.bincount(table, each)[table]))


def weighted_quantile(values: Array, each: Array, share: float) -> float:
    """Weighted quantile, between neighbours linear."""
    order = np.argsort(values)
    at = (np.cumsum(each[order]) - 0.5 * each[order]) / each.sum()
    return float(np.interp(share, at, values[order]))


def independent(each: Array) -> float:
    """How many equally weighted runs say as much: (sum w)^2 / sum w^2."""
    return float(each.sum() ** 2 / np.sum(each**2))


def scaled(runs: Sequence[Residual], hard: Mapping[str, float]) -> Array:
    """Sizes of the errors in units of the scale of their side."""
    sides = [scale(hard, run.standing.parts, slower=run.error > 0.0) for run in runs]
    errors = np.array([run.error for run in runs])
    return np.asarray(np.abs(errors) / np.array(sides))


def half(runs: Sequence[Residual], hard: Mapping[str, float]) -> float:
    """The 80 % quantile of scaled errors, its level (n + 1) / n of that for n independent runs.

    The correction is that of split conformal prediction: with fewer than four runs it asks for the
    largest error seen.
    """
    return max(quantile(scaled(runs, hard), weights(runs)), LEAST_SCALED)


def quantile(sizes: Array, each: Array, count: float | None = None) -> float:
    """The corrected 80 % quantile of weighted errors' sizes, `count` of which are independent."""
    count = independent(each) if count is None else count
    return weighted_quantile(sizes, each, min(COVERAGE * (count + 1.0) / count, 1.0))


def keyed(groups: Iterable[Group]) -> dict[Key, Group]:
    """Groups by what `Errors` looks them up by."""
    return {(group.device, group.software, group.release): group for group in groups}


def groups(runs: Sequence[Residual], hard: Mapping[str, float]) -> list[Group]:
    """All runs, then per device, per software, per both, and these per stated release.

    Mixtures count apart from dense models, on a device as under a software. Small groups lean on
    the usual one, the median over devices and software (releases on all of theirs), where they are
    narrower: few runs see few of the errors there are. Irregular runs count in the group of their
    own release alone: they say nothing of others.
    """
    departs = departures(runs)
    usual_runs = [run for run, departs_by in zip(runs, departs, strict=True) if not departs_by]
    both = _by(usual_runs, lambda run: (run.device, run.software, ANY))
    usual = float(np.median([half(members, hard) for _, members in both]))
    keyed = [
        *_by(usual_runs, lambda run: (ANY, ANY, ANY)),
        *_by(usual_runs, lambda run: (run.device, any_software(run.software), ANY)),
        *_by(usual_runs, lambda run: (ANY, run.software, ANY)),
        *both,
    ]
    grouped = [_group(key, members, hard, usual) for key, members in keyed]
    whole = {(group.device, group.software): group.half for group in grouped}
    return [*grouped, *_releases(runs, departs, hard, whole, usual)]


def _releases(
    runs: Sequence[Residual],
    departs: Sequence[float],
    hard: Mapping[str, float],
    whole: Mapping[tuple[str, str], float],
    usual: float,
) -> Iterator[Group]:
    """A group for each stated release of a software on a device."""
    most: dict[Key, float] = {}
    for run, departs_by in zip(runs, departs, strict=True):
        most[_released(run)] = max(departs_by, most.get(_released(run), 0.0))
    for key, members in _by([run for run in runs if run.standing.release], _released):
        group = _group(key, members, hard, whole.get(key[:2], usual))
        yield replace(group, irregular=most[key])


def departures(runs: Sequence[Residual]) -> list[float]:
    """By how much each run departs from all other releases that ran its plan; 0 where not much.

    The factor between its measured time and the nearest of theirs; predictions do not enter.
    """
    plans = by_plan(runs)
    return [_departs(run, plans.get(_plan_of(run), [])) for run in runs]


def _departs(run: Residual, same: Sequence[Residual]) -> float:
    others = [other.measured for other in same if _released(other) != _released(run)]
    least = min((exp(abs(log(run.measured / other))) for other in others), default=0.0)
    return least if least >= IRREGULAR else 0.0


def by_plan(runs: Sequence[Residual]) -> dict[tuple[object, ...], list[Residual]]:
    """Runs of stated releases by what their tables say of device, software, model and plan."""
    plans: dict[tuple[object, ...], list[Residual]] = {}
    for run in runs:
        if run.standing.release:
            plans.setdefault(_plan_of(run), []).append(run)
    return plans


def _plan_of(run: Residual) -> tuple[object, ...]:
    told = (getattr(run.run, column, None) for column in SAME_PLAN)
    return (run.device, run.software, *told)


def _released(run: Residual) -> Key:
    return run.device, run.software, run.standing.release


def _group(key: Key, runs: Sequence[Residual], hard: Mapping[str, float], usual: float) -> Group:
    count, mine = independent(weights(runs)), half(runs, hard)
    return Group(
        device=key[0],
        software=key[1],
        release=key[2],
        n=len(runs),
        half=max(mine, (count * mine + SHRINK * usual) / (count + SHRINK)),
        ranges=ranges_of(runs),
        systems=tuple(sorted({name for run in runs for name in _systems(run)})),
        kinds=tuple(sorted({kind for run in runs for kind in run.standing.kinds})),
        publishers=tuple(sorted({run.standing.publisher for run in runs})),
    )


def ranges_of(runs: Sequence[Residual]) -> dict[str, tuple[float, float]]:
    """Least and largest of each size."""
    return {
        size: (min(run.sizes[size] for run in runs), max(run.sizes[size] for run in runs))
        for size in runs[0].sizes
    }


def _systems(run: Residual) -> tuple[str, str]:
    """The run's own system, and the one whose constants predicted it."""
    return run.standing.system, run.case.job.system.id


def _by(
    runs: Sequence[Residual], key: Callable[[Residual], Key]
) -> list[tuple[Key, list[Residual]]]:
    by_key: dict[Key, list[Residual]] = {}
    for run in runs:
        by_key.setdefault(key(run), []).append(run)
    return sorted(by_key.items())


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
