"""One measured run beside its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import Errors, Standing
from parsim.sim.confidence.memory_spread import memory_spread
from parsim.validation.step.case import Case, PredictedCase
from parsim.validation.step.measured_run import MeasuredRun

NAMELESS = "(no row_id)"
"""What stands for a `row_id` that is blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRow:
    """One row; errors are (predicted - measured) / measured, None where nothing is measured.

    Steps are seconds with a `step_interval`, peaks bytes of the fullest device with a
    `peak_interval`, both to hold 80 % of measurements. Bubbles are shares of the pipeline's phase:
    `predicted_bubble` by parsim's prices, `bubble_from_profile` by the times that the row states.
    Speed-ups say how many times as fast as the row that a table compares it with it is.
    `stack`, `device` and `precision` of a skipped row are as its cells say.
    `strategy` is that of whole replicas, blank where their gradients are all-reduced.
    `decision` is equal in rows that differ in the plan alone (see `validation/ranking.py`).
    `practice` is the software, apart for each kind of model (`Job.practice`).
    `predicted_reserved` is set where `measured_peak` is more than the allocated memory: what the
    allocator reserved, and with the driver's context where a row says so.
    `case` is what was predicted, and `standing` what its interval follows from.
    """

    table: str
    row_id: str
    reason: str = ""
    model: str = ""
    system: str = ""
    stack: str = ""
    device: str = ""
    software: str = ""
    practice: str = ""
    precision: str = ""
    plan: str = ""
    strategy: str = ""
    decision: tuple[str | int, ...] = ()
    notes: tuple[str, ...] = ()
    predicted_step: float | None = None
    measured_step: float | None = None
    predicted_peak: float | None = None
    measured_peak: float | None = None
    predicted_reserved: float | None = None
    step_interval: tuple[float, float] | None = None
    peak_interval: tuple[float, float] | None = None
    measured_bubble: float | None = None
    predicted_bubble: float | None = None
    bubble_from_profile: float | None = None
    predicted_speedup: float | None = None
    measured_speedup: float | None = None
    case: PredictedCase | None = None
    standing: Standing | None = None

    @classmethod
    def without_prediction(
        cls, table: str, cells: Mapping[str, str], reason: Exception, stack: str
    ) -> ValidatedRow:
        """A row of a table that cannot be predicted, why, and what its cells say of the run."""
        return cls(
            table=table,
            row_id=cells.get("row_id") or NAMELESS,
            reason=str(reason),
            stack=stack,
            device=cells.get("gpu_type", ""),
            precision=cells.get("precision", ""),
        )

    @property
    def skipped(self) -> bool:
        """True where no prediction was made; `reason` says why."""
        return bool(self.reason)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the plan has that not every plan has, as its interval knows it."""
        return self.standing.kinds if self.standing else ()

    @property
    def run(self) -> MeasuredRun | None:
        """The measured run of a transformer as its row states it; None of networks."""
        return self.case.run if isinstance(self.case, Case) else None

    @property
    def ran_out(self) -> bool:
        """Whether the run ended out of memory, as its row says."""
        return self.run is not None and self.run.out_of_memory

    @property
    def filled(self) -> tuple[str, ...]:
        """Sizes that the row leaves blank, each as `column=size (where it is from)`."""
        return () if self.run is None else self.run.filled

    @property
    def error(self) -> float | None:
        """Signed step-time error."""
        return _error(self.predicted_step, self.measured_step)

    @property
    def states_speedup(self) -> bool:
        """Whether the row's measurement is a speed-up, over a run that it describes."""
        return self.measured_speedup is not None

    @property
    def speedup_error(self) -> float | None:
        """Signed error of how many times as fast as another run."""
        return _error(self.predicted_speedup, self.measured_speedup)

    @property
    def memory_error(self) -> float | None:
        """Signed peak-memory error: of reserved memory where the stack prints that."""
        return _error(self.predicted_reserved or self.predicted_peak, self.measured_peak)

    def with_errors(self, errors: Errors) -> ValidatedRow:
        """The row with its intervals by other figures; the prediction stays."""
        peak = self.predicted_reserved or self.predicted_peak
        if self.standing is None or self.case is None or not self.predicted_step or not peak:
            return self
        step = step_interval(self.standing, self.predicted_step, errors)
        job, sizes = self.case.job, self.standing.sizes
        recompute = self.case.plan.recompute
        spread = memory_spread(job.software, recompute, sizes, errors, job.practice)
        return replace(
            self, step_interval=(step.low, step.high), peak_interval=spread.interval(peak)
        )

    def to_json(self) -> dict[str, Any]:
        """One entry of `validate --json`."""
        return {
            "table": self.table,
            "row_id": self.row_id,
            "status": "skipped" if self.skipped else "ok",
            "reason": self.reason,
            "filled_sizes": list(self.filled),
            "predicted_step_time_s": self.predicted_step,
            "measured_step_time_s": self.measured_step,
            "error": self.error,
            "step_time_interval_s": self.step_interval and list(self.step_interval),
            "predicted_peak_allocated_bytes": self.predicted_peak,
            "predicted_peak_reserved_bytes": self.predicted_reserved,
            "measured_peak_memory_bytes": self.measured_peak,
            "memory_error": self.memory_error,
            "peak_interval_bytes": self.peak_interval and list(self.peak_interval),
            **self._bubbles(),
            **self._speedups(),
        }

    def _speedups(self) -> dict[str, float | None]:
        """Only where the row states a speed-up."""
        if not self.states_speedup:
            return {}
        return {
            "predicted_speedup": self.predicted_speedup,
            "measured_speedup": self.measured_speedup,
            "speedup_error": self.speedup_error,
        }

    def _bubbles(self) -> dict[str, float | None]:
        """Only where the row states a bubble: by parsim's times, and by the row's own."""
        if self.measured_bubble is None:
            return {}
        return {
            "predicted_bubble_fraction": self.predicted_bubble,
            "bubble_from_profile": self.bubble_from_profile,
            "measured_bubble_fraction": self.measured_bubble,
        }


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or measured is None:
        return None
    return predicted / measured - 1.0
