"""One plan of a result: its step with its interval, its memory, and its whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.plan import Plan
from parsim.sim.confidence.interval import Interval
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.rounds.figures import StrategyFigures
from parsim.training_run.training_run import TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One plan of the result, seconds and bytes.

    `tied` says that this plan and the best one lie in one another's interval: published runs do
    not tell which of the two is faster. `peak_allocated` is of the fullest rank, `fit` is one word
    for all its devices, `margin` the share of memory that it must leave free to fit. `breakdown`
    sums to `step_time`, `run` is what a whole training run takes, where one is asked for.
    """

    plan: Plan
    step_time: float
    interval: Interval
    tied: bool
    tokens_per_second: float
    speed_unit: str
    mfu: float
    bubble_fraction: float
    peak_allocated: float
    fit: Fit
    margin: float
    breakdown: Mapping[str, float]
    run: TrainingRun | None = None
    strategy: StrategyFigures | None = None

    @property
    def trains_otherwise(self) -> bool:
        """Whether the same samples may train less or more than with the whole batch's gradient."""
        return self.strategy is not None and self.strategy.trains_otherwise

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
            "memory_fit": self.fit.value,
            "memory_margin": self.margin,
            "breakdown_s": dict(self.breakdown),
            **({"training_run": self.run.to_json()} if self.run else {}),
            **({"strategy": self.strategy.to_json()} if self.strategy else {}),
        }

    def record(self) -> dict[str, Any]:
        """One row of a table: the plan's fields and its numbers side by side."""
        low, high = self.interval.low, self.interval.high
        numbers = self.to_json()
        del numbers["plan"], numbers["step_time_interval_s"], numbers["breakdown_s"]
        numbers.pop("training_run", None)
        figures = numbers.pop("strategy", None)
        otherwise = {"trains_otherwise": figures["trains_otherwise"]} if figures else {}
        whole = self.run.records()[0] if self.run else {}
        ends = {"step_time_low_s": low, "step_time_high_s": high}
        return {**self.plan.to_json(), **numbers, **ends, **otherwise, **whole}
