"""What measured times deviate from the fitted constants: the residuals of a catalog entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.calibration.cases.samples import Sample, seconds_of
from parsim.arrays import Array
from parsim.cluster.hardware import Measured
from parsim.cluster.residuals import LIMIT, WHOLE_LIMIT
from parsim.cost.layer.layers import WAITED

SPAN = 8.0
"""How far beyond the measured layers, as a factor of time, a fitted line is written down."""


def points(samples: Sequence[Sample], modelled: Sequence[float]) -> Measured:
    """Measured over modelled time of every sample, by kind, for `residuals` of a catalog entry."""
    ratios: dict[str, dict[tuple[float, ...], float]] = {}
    for sample, seconds in zip(samples, modelled, strict=True):
        where = tuple(float(value) for name, value in sample.shape.items() if name != "launches")
        ratio = min(max(sample.seconds / seconds, 1.0 / LIMIT), LIMIT)
        ratios.setdefault(sample.kind, {}).setdefault(where, ratio)
    return {
        kind: tuple((*where, ratio) for where, ratio in rows.items())
        for kind, rows in ratios.items()
    }


def lines(samples: Sequence[Sample]) -> Measured:
    """Residuals of whole layers, whose one coordinate is their modelled time x.

    Measured time is a + b x: what Python, hooks and waiting add is the same for thin and for wide
    layers. The line of least relative error through a kind's samples, as points beyond both ends.
    Of waits one ratio: they are shares.
    """
    written = {}
    for kind in dict.fromkeys(sample.kind for sample in samples):
        timed = [sample for sample in samples if sample.kind == kind]
        modelled = np.array([sample.shape["seconds"] for sample in timed])
        measured = seconds_of(timed)
        fixed, slope = (
            (0.0, _ratio(modelled, measured)) if WAITED in kind else _line(modelled, measured)
        )
        low, high = float(modelled.min()) / SPAN, float(modelled.max()) * SPAN
        grid = np.geomspace(low, high, round(np.log2(high / low)) * 4 + 1)
        ratios = np.clip(fixed / grid + slope, 1.0 / WHOLE_LIMIT, WHOLE_LIMIT)
        written[kind] = tuple(zip(grid.tolist(), ratios.tolist(), strict=True))
    return written


def _line(modelled: Array, measured: Array) -> tuple[float, float]:
    """(a, b) of a + b x nearest to the measured times, relative errors; neither below 0."""
    columns = np.stack([1.0 / measured, modelled / measured], axis=1)
    (fixed, slope), *_ = np.linalg.lstsq(columns, np.ones(len(measured)), rcond=None)
    if len(measured) < 2 or fixed < 0.0:
        return 0.0, _ratio(modelled, measured)
    if slope <= 0.0:
        return float(np.exp(np.log(measured).mean())), 0.0
    return float(fixed), float(slope)


def _ratio(modelled: Array, measured: Array) -> float:
    return float(np.exp(np.log(measured / modelled).mean()))


def residuals(samples: Sequence[Sample], predicted: Sequence[float]) -> dict[str, dict[str, float]]:
    """Per kind: how many, and median, 90th percentile and largest of |predicted / measured - 1|."""
    errors: dict[str, list[float]] = {}
    for sample, seconds in zip(samples, predicted, strict=True):
        errors.setdefault(sample.kind, []).append(abs(seconds / sample.seconds - 1.0))
    summaries = {}
    for kind, of_kind in errors.items():
        median, p90 = (float(x) for x in np.percentile(of_kind, [50, 90]))
        summaries[kind] = {"n": len(of_kind), "median": median, "p90": p90, "max": max(of_kind)}
    return summaries
