"""What is left of many signed errors: mean, median, 90th percentile, maximum and bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of one table (fractions); None where no row has a measured value."""

    n: int
    n_skipped: int
    mean_abs_error: float | None = None
    median_abs_error: float | None = None
    p90_abs_error: float | None = None
    max_abs_error: float | None = None
    bias: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Field names are the JSON contract."""
        return {name: getattr(self, name) for name in self.__slots__}


def summarise(errors: Sequence[float], skipped: int) -> Summary:
    """Mean, median, 90th percentile (nearest rank) and maximum of |error|, and the mean error."""
    if not errors:
        return Summary(n=0, n_skipped=skipped)
    sizes = sorted(abs(e) for e in errors)
    rank = -(-9 * len(sizes) // 10)  # ceil(0.9 n)
    return Summary(
        n=len(sizes),
        n_skipped=skipped,
        mean_abs_error=mean(sizes),
        median_abs_error=median(sizes),
        p90_abs_error=sizes[rank - 1],
        max_abs_error=sizes[-1],
        bias=mean(errors),
    )
