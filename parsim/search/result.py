"""What a search found: the best plans first, and what happened to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parsim.plan import Plan
from parsim.sim.interval import Interval

Progress = Callable[[int, int], None]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One plan of the result, seconds and bytes.

    `tied` says that this plan and the best one lie in one another's interval: published runs do
    not tell which of the two is faster.
    """

    plan: Plan
    step_time: float
    interval: Interval
    tied: bool
    tokens_per_second: float
    mfu: float
    bubble_fraction: float
    peak_allocated: float

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "plan": self.plan.to_json(),
            "step_time_s": self.step_time,
            "step_time_interval_s": self.interval.to_json(),
            "interval_basis": self.interval.basis,
            "tied_with_best": self.tied,
            "tokens_per_s": self.tokens_per_second,
            "mfu": self.mfu,
            "bubble_fraction": self.bubble_fraction,
            "peak_allocated_bytes": self.peak_allocated,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best plans first, and what happened to the others."""

    plans: tuple[Ranked, ...]
    counts: dict[str, int]
    illegal_reasons: dict[str, int]
    optimality: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim search --json` prints (no times of day, no durations)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "plans": [plan.to_json() for plan in self.plans],
            "counts": dict(self.counts),
            "optimality": self.optimality,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per plan, for a data frame."""
        return [
            {**entry.plan.to_json(), "step_time_s": entry.step_time, "mfu": entry.mfu,
             "bubble_fraction": entry.bubble_fraction,
             "peak_allocated_bytes": entry.peak_allocated}
            for entry in self.plans
        ]  # fmt: skip
