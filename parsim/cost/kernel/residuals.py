"""What measured points say about shapes near them: factors on modelled times, and their spread.

A Gaussian process over the logarithms r of (measured / modelled), with x in octaves:

    cov(r(x), r(y)) = spread^2 prod_d exp(-|x_d - y_d| / length_d) + jagged^2 [x is y] + mean^2

Near measured points the factor is theirs, far from all of them the model's (or the kind's mean).
The exponential is as rough as kernel times are: a library changes its mind between two sizes. What
is `jagged` belongs to one shape: it is reproduced there and not passed on to neighbours.

Source: lengths of published GEMM tables by likelihood, `reports/kernels.md`; of a calibration's
kinds by the error of each point left out. On shapes outside the fit it takes the tile model from
4.8 to 4.0 % median and from 14 to 12 % at p90 (A100, H100).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from parsim.arrays import Array, Num, distinct
from parsim.cluster.hardware import Measured
from parsim.cluster.measured.published import Scales

Points = tuple[tuple[float, ...], ...]

TOUCH = 1e-6
"""Shapes nearer than this, in octaves, are the same; also keeps matrices regular."""
CHUNK = 1 << 20
"""Cases times points that are compared at a time."""
LENGTHS = {1: (6.0,), 2: (6.0, 4.0), 3: (2.0, 1.0, 2.0)}
"""Octaves by number of coordinates: size; FLOPs, sequence; m, n, k. Few points reach further than
the 500 of a published table, whose n-length is 0.1 to 0.5."""
REACHES, JAGGED = (0.5, 1.0, 2.0, 4.0), (0.0, 0.5, 1.0, 2.0)
"""Factors on LENGTHS and on the spread among which a calibration's kind takes the best."""
SHARED = 2.5
"""A calibration's kind may be off as a whole: prior of its mean over its spread."""
FEW = 4
"""With fewer points the left-out error chooses nothing."""
UNMEASURED = dict.fromkeys(
    ("gemm", "attention_forward", "attention_backward", "grouped_gemm"), 0.15
)
"""Standard deviation of the log error of a kind that was not measured on its device: 10 to 20 % by
the roofline from the catalog; 0.2 for other kinds."""


def measured_factor(
    residuals: Measured, kind: str, *where: Num, scales: Scales | None = None
) -> Array | float:
    """Measured over modelled time of a kind at some shapes; 1 where nothing was measured.

    Args:
        residuals: of a device or a system.
        kind: of kernel or collective.
        where: the kind's coordinates, arrays (or numbers) that broadcast against each other;
            trailing ones that its points do not have are left out.
        scales: of a published table; None chooses by the points themselves.
    """
    points = residuals.get(kind)
    if points is None:
        return 1.0
    columns, back, shape = distinct(*where[: len(points[0]) - 1])
    factor = np.exp(_process(points, scales).mean(np.stack(columns, axis=1)))
    return np.asarray(factor if back is None else factor[back]).reshape(shape)


def residual_spread(
    residuals: Measured, kind: str, *where: Num, scales: Scales | None = None
) -> Array | float:
    """Standard deviation of the logarithmic error of a time that `measured_factor` corrected.

    Small at measured points, the table's spread far from them, more where none is measured.
    """
    points = residuals.get(kind)
    if points is None:
        return UNMEASURED.get(kind, 0.2)
    columns, back, shape = distinct(*where[: len(points[0]) - 1])
    deviation = _process(points, scales).deviation(np.stack(columns, axis=1))
    return np.asarray(deviation if back is None else deviation[back]).reshape(shape)


def support(
    residuals: Measured, kind: str, *where: Num, scales: Scales | None = None
) -> Array | float:
    """How much of a shape's error its nearest measured point shares: 1 there, 0 far from all."""
    points = residuals.get(kind)
    if points is None:
        return 0.0
    columns, back, shape = distinct(*where[: len(points[0]) - 1])
    nearest = _process(points, scales).alike(np.stack(columns, axis=1)).max(axis=1)
    return np.asarray(nearest if back is None else nearest[back]).reshape(shape)


def left_out(points: Sequence[tuple[float, ...]], scales: Scales) -> Array:
    """Error of each point as the others predict it, in the standard deviations they give it.

    The error of point i is (C^-1 r)_i / (C^-1)_ii and its variance 1 / (C^-1)_ii: no need to invert
    n times.
    """
    table = np.array(points, dtype=np.float64)
    inverse = _inverse(_octaves(table[:, :-1]), scales)
    return np.asarray(inverse @ np.log(table[:, -1]) / np.sqrt(np.diag(inverse)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """Points in octaves with the inverse of their covariance."""

    scales: Scales
    at: Array
    weights: Array
    inverse: Array

    def mean(self, cases: Array) -> Array:
        """Log factors of cases (U, D), summed by row: other cases beside one cannot matter."""
        return np.concatenate(
            [np.sum(self._towards(part) * self.weights, axis=1) for part in self._parts(cases)]
        )

    def deviation(self, cases: Array) -> Array:
        """Standard deviation of the log error of cases, repeats included."""
        s = self.scales
        prior = s.spread**2 + s.jagged**2 + s.mean**2
        known = []
        for part in self._parts(cases):
            towards = self._towards(part)
            known.append(np.asarray(np.sum((towards @ self.inverse) * towards, axis=1)))
        variance = np.maximum(prior - np.concatenate(known), 0.0) + s.noise**2
        return np.asarray(np.sqrt(variance), dtype=np.float64)

    def alike(self, cases: Array) -> Array:
        """Correlation of what neighbours share, cases by points."""
        return np.exp(-_distance(_octaves(cases), self.at, self.scales.lengths))

    def _parts(self, cases: Array) -> list[Array]:
        return np.array_split(cases, max(1, -(-cases.shape[0] * len(self.at) // CHUNK)))

    def _towards(self, cases: Array) -> Array:
        return _covariance(_octaves(cases), self.at, self.scales)


@lru_cache(maxsize=256)
def _process(points: Points, scales: Scales | None) -> _Process:
    table = np.array(points, dtype=np.float64)
    at, ratios = _octaves(table[:, :-1]), np.log(table[:, -1])
    scales = scales or _chosen(at, ratios)
    inverse = _inverse(at, scales)
    return _Process(scales=scales, at=at, weights=inverse @ ratios, inverse=inverse)


def _chosen(at: Array, ratios: Array) -> Scales:
    """Scales with the least mean error of points that are left out (see `left_out`)."""
    base = LENGTHS.get(at.shape[1], (2.0,) * at.shape[1])
    best, least = Scales(spread=1.0, lengths=base), np.inf
    options = product(REACHES, JAGGED) if len(ratios) >= FEW else ((1.0, 0.5),)
    for reach, jagged in options:
        lengths = tuple(reach * factor for factor in base)
        tried = Scales(spread=1.0, lengths=lengths, jagged=jagged, noise=0.0, mean=SHARED)
        inverse = _inverse(at, tried)
        scaled = inverse @ ratios
        error = float(np.mean(np.abs(scaled / np.diag(inverse))))
        if error < least * (1.0 - 1e-9):
            size = max(float(np.sqrt(np.mean(scaled**2 / np.diag(inverse)))), 0.005)
            least = error
            best = Scales(spread=size, lengths=lengths, jagged=jagged * size, mean=SHARED * size)
    return best


def _inverse(at: Array, scales: Scales) -> Array:
    nugget = scales.noise**2 + (TOUCH * scales.spread) ** 2
    return np.asarray(np.linalg.inv(_covariance(at, at, scales) + nugget * np.eye(len(at))))


def _covariance(points: Array, other: Array, scales: Scales) -> Array:
    distance = _distance(points, other, scales.lengths)
    shared = scales.spread**2 * np.exp(-distance) + scales.mean**2
    if scales.jagged == 0.0:
        return shared
    return np.asarray(shared + np.where(distance < TOUCH, scales.jagged**2, 0.0))


def _distance(points: Array, other: Array, lengths: Sequence[float]) -> Array:
    """Sum over coordinates of |x - y| / length."""
    total = np.zeros((len(points), len(other)))
    for d, length in enumerate(lengths):
        total += np.abs(points[:, d, None] - other[None, :, d]) / length
    return total


def _octaves(cases: Array) -> Array:
    return np.asarray(np.log2(np.maximum(cases, TOUCH)))
