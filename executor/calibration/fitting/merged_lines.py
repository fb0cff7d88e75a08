"""Lines of whole layers of two calibrations as one, fitted through both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.calibration.cases.samples import Sample
from executor.calibration.fitting.deviations import lines
from parsim.cluster.hardware import Device, Measured, System
from parsim.cluster.measured.layer_kinds import is_layer_kind
from parsim.cluster.measured.residuals import WHOLE_LIMIT, WHOLE_SPAN


def merged_lines(old: Device | System, new: Device | System) -> Measured:
    """Lines of whole layers through the measured range of both files."""
    samples = [
        Sample(kind=kind, shape={"seconds": x}, seconds=ratio * x)
        for kind in sorted({*old.residuals, *new.residuals})
        if is_layer_kind(kind)
        for x, ratio in _core(old.residuals.get(kind, ()), new.residuals.get(kind, ()))
    ]
    return lines(samples)


def _core(*files: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Points of lines without what was added at both ends (see `lines`).

    The written points lie on ratio = fixed / x + slope, so that is known but for rounding.
    """
    inner_points = []
    for rows in files:
        if rows:
            inside = [row for row in rows if 1.0 / WHOLE_LIMIT < row[1] < WHOLE_LIMIT]
            table = np.array(inside or rows)
            columns = np.stack([1.0 / table[:, 0], np.ones(len(table))], axis=1)
            (fixed, slope), *_ = np.linalg.lstsq(columns, table[:, 1], rcond=None)
            low, high = rows[0][0] * WHOLE_SPAN, rows[-1][0] / WHOLE_SPAN
            at = [low, *(x for x, _ in rows if low < x < high), high]
            inner_points += [(x, float(fixed / x + slope)) for x in at]
    return sorted(inner_points)
