"""Do prediction intervals hold what they promise? Coverage and width over measured rows.

An interval that is wide enough to be always right is useless, so its width stands beside: half of
it over the prediction, in the median, against the median error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Rows with an interval and a measurement; fractions, None where there is no row.

    `covered` is the share of measurements inside, `half_width` the median of (high - low) / 2 over
    the prediction, `error` the median of |predicted / measured - 1|.
    """

    n: int
    covered: float | None
    half_width: float | None
    error: float | None

    @property
    def ratio(self) -> float | None:
        """Half width in median errors; 1.9 for a normal error and 80 %."""
        return self.half_width / self.error if self.half_width and self.error else None

    def to_json(self) -> dict[str, Any]:
        """Plain data, the ratio with it."""
        names = {name: getattr(self, name) for name in self.__slots__}
        return {**names, "half_width_over_error": self.ratio}


def coverage(rows: Iterable[tuple[float, float, Bounds]]) -> Coverage:
    """Judge (predicted, measured, interval) rows."""
    kept = list(rows)
    if not kept:
        return Coverage(n=0, covered=None, half_width=None, error=None)
    inside = [low <= measured <= high for _, measured, (low, high) in kept]
    return Coverage(
        n=len(kept),
        covered=sum(inside) / len(kept),
        half_width=median(0.5 * (high - low) / predicted for predicted, _, (low, high) in kept),
        error=median(abs(predicted / measured - 1.0) for predicted, measured, _ in kept),
    )
