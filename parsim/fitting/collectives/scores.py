"""How well the fit of collectives predicts curves and sizes that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.fitting.collectives.fit import FittedCollectives, fit_constants, fit_curve
from parsim.fitting.collectives.points import LEAST_POINTS, Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """ln(predicted / measured) per curve: constants fitted without it, and its own unseen sizes.

    `unseen` holds sizes and errors, none where a curve has too few points.
    """

    fitted: FittedCollectives
    left_out: tuple[Array, ...]
    unseen: tuple[tuple[Array, Array], ...]


def score(curves: Sequence[Points]) -> Scores:
    """Fit everything, and each curve once more from the others and from half of itself."""
    fitted = fit_constants(curves)
    left_out, unseen = [], []
    for curve in curves:
        others = [other for other in curves if other is not curve]
        alone = len(curve.size) < LEAST_POINTS
        left_out.append((fitted if alone else fit_constants(others)).errors(curve))
        unseen.append((np.zeros(0), np.zeros(0)) if alone else _unseen(curve, fitted))
    return Scores(fitted=fitted, left_out=tuple(left_out), unseen=tuple(unseen))


def _unseen(curve: Points, fitted: FittedCollectives) -> tuple[Array, Array]:
    """Sizes and errors of every second point by a fit to the others, both ways."""
    even = np.arange(len(curve.size)) % 2 == 0
    sizes, errors = [], []
    for chosen in (even, ~even):
        test = curve.only(~chosen)
        shape = fit_curve([curve.only(chosen)], fitted)
        predicted = shape.seconds(test.size) + bool(curve.overhead) * fitted.torch
        sizes.append(test.size)
        errors.append(np.log(predicted / test.seconds))
    return np.concatenate(sizes), np.concatenate(errors)
