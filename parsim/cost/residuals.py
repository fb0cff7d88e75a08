"""What a calibration measured beside the constants: factors interpolated between measured points.

    ln factor(x) = sum w_i ln r_i + w_0 mean(ln r)
                   -------------------------------      w_i = 1 / |ln x - ln x_i|^2
                          sum w_i + w_0

so a measured shape is reproduced, a shape between measured ones is a blend of its neighbours, and
far from all of them (beyond REACH) the mean of the kind holds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Measured

Array = NDArray[np.float64]
Num = Array | float | int
Points = tuple[tuple[float, ...], ...]

REACH = float(np.log(64.0))
"""Distance at which one measured point weighs as much as the mean: a factor of 64 in one size."""
NEAR = float(np.log(4.0))
"""A shape further than this from every measured point is outside of what was measured."""
TOUCH = 1e-6
"""Points nearer than this are the same: it keeps 1 / d^2 finite."""


def measured_factor(residuals: Measured, kind: str, *where: Num) -> Array | float:
    """Measured over modelled time of a kind at some shapes; 1 where nothing was measured.

    Args:
        residuals: of a device or a system.
        kind: of kernel or collective.
        where: the kind's coordinates, arrays (or numbers) that broadcast against each other.
    """
    points = residuals.get(kind)
    if points is None:
        return 1.0
    columns = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in where))
    shape = columns[0].shape
    cases = np.stack([column.reshape(-1) for column in columns], axis=1)
    distinct, back = np.unique(cases, axis=0, return_inverse=True)
    return _interpolated(points, distinct)[back.reshape(-1)].reshape(shape)


def covered(residuals: Measured, kind: str, *where: float) -> bool:
    """Whether a shape lies within NEAR of a measured point of its kind (or none is measured)."""
    points = residuals.get(kind)
    if points is None:
        return True
    logs, _ = _logarithms(points)
    at = np.log(np.maximum(np.array(where, dtype=np.float64), TOUCH))
    return bool(np.min(np.sum((logs - at) ** 2, axis=1)) <= NEAR**2)


def _interpolated(points: Points, cases: Array) -> Array:
    logs, ratios = _logarithms(points)
    at = np.log(np.maximum(cases, TOUCH))
    squares = np.sum((at[:, None, :] - logs[None, :, :]) ** 2, axis=2)
    weights = 1.0 / (squares + TOUCH**2)
    mean = 1.0 / REACH**2
    total = weights @ ratios + mean * ratios.mean()
    return np.asarray(np.exp(total / (weights.sum(axis=1) + mean)))


@lru_cache(maxsize=256)
def _logarithms(points: Points) -> tuple[Array, Array]:
    table = np.log(np.array(points, dtype=np.float64))
    return table[:, :-1], table[:, -1]
