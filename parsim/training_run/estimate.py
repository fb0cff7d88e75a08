"""A number with the ends of its interval."""

from __future__ import annotations

from math import exp, hypot, log
from typing import NamedTuple


class Estimate(NamedTuple):
    """A positive value and the interval that it lies in, all in one unit."""

    low: float
    value: float
    high: float

    def times(self, factor: float) -> Estimate:
        """This interval in another unit."""
        return Estimate(self.low * factor, self.value * factor, self.high * factor)

    def spread(self, share: float) -> Estimate:
        """The interval when the value is also wrong by a factor of 1 + share, or its inverse.

        The two errors have nothing to do with one another, so that their logarithms add as squares.
        """
        more = log(1.0 + share)
        below, above = log(self.value / self.low), log(self.high / self.value)
        return Estimate(
            self.value * exp(-hypot(below, more)),
            self.value,
            self.value * exp(hypot(above, more)),
        )

    def to_json(self) -> list[float]:
        """[low, high] of the interval."""
        return [self.low, self.high]
