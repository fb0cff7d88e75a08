"""Runs with the errors of their predictions: how much each counts, and quantiles of the errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.sim.confidence.known_errors import COVERAGE, Key, Sizes, Standing, scale
from parsim.validation.step.case import Case, PredictedCase
from parsim.validation.step.measured_run import MeasuredRun

LEAST_HALF = 0.01
"""No half of a calibrated interval is narrower: repeats of a step scatter by a percent."""
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


def sorted_by(
    runs: Sequence[Residual], key: Callable[[Residual], Key]
) -> list[tuple[Key, list[Residual]]]:
    """Runs by a key of each, in order of the keys."""
    by_key: dict[Key, list[Residual]] = {}
    for run in runs:
        by_key.setdefault(key(run), []).append(run)
    return sorted(by_key.items())
