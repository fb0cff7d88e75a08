"""The best plans of a search once more, beside what running them took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.plan import Plan
from parsim.results import Result
from parsim.units import format_seconds

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """One plan that ran: seconds of a step as predicted, and the median of each of its runs."""

    plan: Plan
    predicted: float
    runs: tuple[float, ...]

    @property
    def measured(self) -> float:
        """Mean of the runs' medians, seconds."""
        return sum(self.runs) / len(self.runs)

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MeasuredPlans(Result):
    """Plans in the order of their predictions, with what they took.

    `spearman` is the rank correlation of predicted and measured seconds (None: all measured alike),
    `regret` the share by which the first plan is slower than the fastest. `twin` says in words how
    the job that ran differs from the one that was searched; it is empty where that very job ran.
    `skipped` are plans that did not run, with the reason. `folder` holds the runs,
    `scenario` is the file that a calibration of this machine takes.
    """

    plans: tuple[MeasuredPlan, ...]
    spearman: float | None
    regret: float
    twin: str
    skipped: tuple[tuple[str, str], ...]
    folder: str
    scenario: str

    @property
    def headline(self) -> str:
        """The fastest plan, and what the search's choice cost."""
        fastest = min(self.plans, key=lambda entry: entry.measured)
        return (
            f"fastest of {len(self.plans)}: {fastest.plan.label()}, "
            f"{format_seconds(fastest.measured)}; the search's first is "
            f"{100 * self.regret:.1f} % slower"
        )

    def to_json(self) -> dict[str, Any]:
        """The block `measured` of `parsim search --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "plans": self.records(),
            "spearman": self.spearman,
            "regret_at_1": self.regret,
            "twin": self.twin,
            "skipped": [{"plan": plan, "reason": reason} for plan, reason in self.skipped],
            "folder": self.folder,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per plan."""
        return [
            {
                "plan": entry.plan.label(),
                "predicted_step_time_s": entry.predicted,
                "measured_step_time_s": entry.measured,
                "runs_step_time_s": list(entry.runs),
                "error": entry.error,
            }
            for entry in self.plans
        ]
