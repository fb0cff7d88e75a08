"""What a guide says: a row for each family, which one to take, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.results import Result
from parsim.sim.prediction import Prediction

SCHEMA_VERSION = 1

OTHERWISE = "* trains otherwise than one device with the whole batch; convergence is not predicted"
"""What the star behind a family's name means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRow:
    """One family: its best plan's prediction, or why there is none.

    `speed_up` and `efficiency` are over one device with the same samples a step and device (None
    where one device has no prediction), `limits` what holds it back.
    """

    name: str
    same_training: bool
    prediction: Prediction | None
    reason: str = ""
    samples_per_second: float = 0.0
    speed_up: float | None = None
    efficiency: float | None = None
    limits: str = ""

    @property
    def fits(self) -> bool:
        """Whether there is a plan, and it fits its devices or nearly so."""
        return self.prediction is not None and self.prediction.fit.value != "does not fit"

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        prediction = self.prediction
        numbers: dict[str, Any] = {}
        if prediction is not None:
            strategy = prediction.strategy
            numbers = {
                "plan": prediction.plan.to_json(),
                "step_time_s": prediction.step_time,
                "step_time_interval_s": prediction.interval.to_json(),
                "samples_per_s": self.samples_per_second,
                "speed_up": self.speed_up,
                "efficiency": self.efficiency,
                "peak_allocated_bytes": max(prediction.peak_allocated),
                "memory_fit": prediction.fit.value,
                "limited_by": self.limits,
                "tier": strategy.tier if strategy else "recurrence",
            }
        return {
            "family": self.name,
            "same_training_as_one_device": self.same_training,
            "reason": self.reason or None,
            **numbers,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Guide(Result):
    """All families of a scenario, the recommended one, and the reasons in words."""

    scenario: str
    rows: tuple[FamilyRow, ...]
    chosen: FamilyRow | None
    reasons: tuple[str, ...]

    @property
    def headline(self) -> str:
        """The recommendation."""
        if self.chosen is None or self.chosen.prediction is None:
            return f"{self.scenario}: no family fits"
        return f"{self.scenario}: {self.chosen.name} ({self.chosen.prediction.plan.label()})"

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim guide --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "scenario": self.scenario,
            "recommended": self.chosen and self.chosen.name,
            "reasons": list(self.reasons),
            "families": [row.to_json() for row in self.rows],
        }

    def records(self) -> list[dict[str, Any]]:
        """A row for each family."""
        return [
            {name: value for name, value in row.to_json().items() if name != "plan"}
            for row in self.rows
        ]
