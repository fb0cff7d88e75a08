"""What measured times deviate from the fitted constants: the residuals of a catalog entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Sample, seconds_of
from parsim.arrays import Array
from parsim.cluster.hardware import Measured
from parsim.cluster.measured.layer_kinds import WAITED
from parsim.cluster.measured.residuals import LIMIT, WHOLE_LIMIT, WHOLE_SPAN

FEW_LAYERS = 0.05
"""Standard deviation (ln) of a layer's time around a line of one or two points: forwards and
backwards of the hardware suite's runs are 3.5 and 3.6 % off in the median, which of a normal error
is 0.67 standard deviations (`reports/hardware/cpu/report.md`)."""
LINE_SPAN = 1.5
"""The largest of a line's layers over its least, by modelled time, from which on it is a line: on
less, 2 % of noise would move what is fixed by more than 6 % of the time."""


def points(samples: Sequence[Sample], modelled: Sequence[float]) -> Measured:
    """Measured over modelled time of every sample, by kind, for `residuals` of a catalog entry."""
    ratios: dict[str, dict[tuple[float, ...], float]] = {}
    for sample, seconds in zip(samples, modelled, strict=True):
        where = tuple(
            float(value) for name, value in sample.shape.items() if name not in kinds.BESIDE
        )
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
        low, high = float(modelled.min()) / WHOLE_SPAN, float(modelled.max()) * WHOLE_SPAN
        grid = np.geomspace(low, high, round(np.log2(high / low)) * 4 + 1)
        ratios = np.clip(fixed / grid + slope, 1.0 / WHOLE_LIMIT, WHOLE_LIMIT)
        written[kind] = tuple(zip(grid.tolist(), ratios.tolist(), strict=True))
    return written


def spreads(samples: Sequence[Sample], scatters: Sequence[float]) -> dict[str, float]:
    """Standard deviation (ln) of whole layers' times around their line, by kind.

    sqrt( s^2 n / (n - 2) + scatter^2 ): s^2 is the mean square of ln(measured / line) over the
    kind's n > 2 points, as two are spent on the line (FEW_LAYERS where there are no more), scatter
    that of the timings themselves, root mean square. Waits have none: their layers' seconds do.
    """
    deviations = {}
    for kind in dict.fromkeys(sample.kind for sample in samples if WAITED not in sample.kind):
        rows = [i for i, sample in enumerate(samples) if sample.kind == kind]
        modelled = np.array([samples[i].shape["seconds"] for i in rows])
        measured = seconds_of([samples[i] for i in rows])
        around = FEW_LAYERS
        if len(rows) > 2:
            fixed, slope = _line(modelled, measured)
            missed = np.log(measured / (fixed + slope * modelled))
            around = float(np.sqrt(np.mean(missed**2) * len(rows) / (len(rows) - 2)))
        scatter = float(np.sqrt(np.mean(np.square([scatters[i] for i in rows]))))
        deviations[kind] = float(np.hypot(around, scatter))
    return deviations


def _line(modelled: Array, measured: Array) -> tuple[float, float]:
    """(a, b) of a + b x nearest to the measured times, relative errors; neither below 0.

    Layers of about one size (LINE_SPAN) tell no a: of those one ratio.
    """
    if modelled.max() < LINE_SPAN * modelled.min():
        return 0.0, _ratio(modelled, measured)
    columns = np.stack([1.0 / measured, modelled / measured], axis=1)
    (fixed, slope), *_ = np.linalg.lstsq(columns, np.ones(len(measured)), rcond=None)
    if fixed < 0.0:
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
