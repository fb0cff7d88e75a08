"""Normal draws in bulk, and the largest of n of them drawn at once.

With U uniform, U^(1/n) is distributed as the largest of n uniform draws, so its normal quantile is
the largest of n normal draws: exact, at the price of one. U^(1/n) = exp(-E / n) with E exponential,
and 1 - U^(1/n) keeps its digits where U^(1/n) is next to 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Floats

_CENTRE = (
    (5.9109374720e1, 1.5929113202e2, 5.0434271938e1, 3.3871327179e0),
    (6.7187563600e1, 7.8757757664e1, 1.7895169469e1, 1.0),
)
_TAIL = (
    (1.7023821103e-1, 1.3067284816e0, 2.7568153900e0, 1.4234372777e0),
    (1.2021132975e-1, 7.3700164250e-1, 1.0),
)
_FAR = (
    (1.7337203997e-2, 4.2868294337e-1, 3.0812263860e0, 6.6579051150e0),
    (1.2258202635e-2, 2.4197894225e-1, 1.0),
)
"""Rational functions of PPND7: numerator, denominator, highest power first."""


class Pairs:
    """Single-precision normal draws of one shape, one or many at once, always the same numbers.

    Box and Muller: sqrt(-2 log u) cos(2 pi w) and the same with sin are two independent normal
    draws. In numpy's vectorised functions that takes less than half the time of its own draws. They
    end at 5.8 standard deviations, since u has 24 bits.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._size = shape, math.prod(shape)
        self._half = (self._size + 1) // 2

    def normal(self, rng: np.random.Generator, count: int) -> NDArray[np.float32]:
        """The next draws, (count, *shape): the same as one by one."""
        uniform = rng.random((count, 2, self._half), dtype=np.float32)
        radius, angle = uniform[:, 0], uniform[:, 1]
        np.subtract(1, radius, out=radius)
        np.log(radius, out=radius)
        radius *= -2
        np.sqrt(radius, out=radius)
        angle *= np.float32(2 * math.pi)
        both = np.empty_like(uniform)
        np.multiply(np.cos(angle), radius, out=both[:, 0])
        np.multiply(np.sin(angle), radius, out=both[:, 1])
        return both.reshape(count, -1)[:, : self._size].reshape(count, *self._shape)


def exponentials(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Single-precision exponential draws; none is smaller than half of 2^-24, u's grain."""
    drawn = rng.random(shape, dtype=np.float32)
    np.subtract(1, drawn, out=drawn)
    np.log(drawn, out=drawn)
    return np.maximum(np.negative(drawn, out=drawn), np.float32(2.0**-25), out=drawn)


def largest_of(n: int, exponential: Floats) -> Floats:
    """The largest of n standard normal draws for each standard exponential draw."""
    return upper_quantile(-np.expm1(exponential / exponential.dtype.type(-n)))


def upper_quantile(tail: Floats) -> Floats:
    """The z that a standard normal draw exceeds with probability `tail`, 0 < tail < 1.

    Source: Wichura, algorithm AS 241 (Applied Statistics 37, 1988), PPND7: about 7 digits.
    Leaves out: nothing; a tail of 0 (a rounded draw) is read as the smallest number above it.
    """
    half = tail.dtype.type(0.5)
    from_centre = half - tail
    inner = tail.dtype.type(0.180625) - from_centre * from_centre
    centre = from_centre * _ratio(inner, *_CENTRE)
    side = np.minimum(tail, 1 - tail)
    np.maximum(side, np.finfo(tail.dtype).tiny, out=side)
    root = np.sqrt(-np.log(side))
    outer = _ratio(root - tail.dtype.type(1.6), *_TAIL)
    far = root > 5
    if far.any():
        outer[far] = _ratio(root[far] - 5, *_FAR)
    return np.where(np.abs(from_centre) <= 0.425, centre, np.copysign(outer, from_centre))


def _ratio(at: Floats, above: tuple[float, ...], below: tuple[float, ...]) -> Floats:
    return _polynomial(at, above) / _polynomial(at, below)


def _polynomial(at: Floats, factors: tuple[float, ...]) -> Floats:
    """Horner's rule in place, in the precision of `at`."""
    value = np.full_like(at, factors[0])
    for factor in factors[1:]:
        value *= at
        value += at.dtype.type(factor)
    return value
