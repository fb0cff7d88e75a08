"""What parsim says of one plan: times, fractions, memory, and where each number came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.plan import Plan
from parsim.sim.interval import COVERAGE, Interval
from parsim.timeline import Timeline

SCHEMA_VERSION = 1

BUBBLE_DEFINITION = (
    "bubble_fraction = idle time of a rank's compute stream inside the pipeline phase over that "
    "phase's length, mean over ranks; bubble_overhead = the same idle time over busy time"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One simulated step; seconds and bytes.

    `interval` is to hold the measured step time in 80 % of cases. `breakdown` sums to
    `step_time`. `peak_allocated` has one entry per pipeline rank, `memory` is
    the breakdown of the rank with the highest peak. `capacity` is the device's memory.
    `notes` say where device or system constants come from the catalog alone.
    """

    plan: Plan
    step_time: float
    interval: Interval
    pipeline_time: float
    tokens_per_second: float
    mfu: float
    hfu: float
    peak_flops: float
    bubble_fraction: float
    bubble_overhead: float
    device_span: float
    breakdown: Mapping[str, float]
    peak_allocated: tuple[float, ...]
    memory: Mapping[str, float]
    capacity: float
    notes: tuple[str, ...]
    timeline: Timeline | None = None

    @property
    def worst_rank(self) -> int:
        """Pipeline rank with the highest memory peak."""
        return max(range(len(self.peak_allocated)), key=self.peak_allocated.__getitem__)

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim simulate --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "plan": self.plan.to_json(),
            "step_time_s": self.step_time,
            "step_time_interval_s": self.interval.to_json(),
            "interval_coverage": COVERAGE,
            "interval_basis": self.interval.basis,
            "pipeline_time_s": self.pipeline_time,
            "device_span_s": self.device_span,
            "tokens_per_s": self.tokens_per_second,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "peak_flops_per_s": self.peak_flops,
            "bubble_fraction": self.bubble_fraction,
            "bubble_overhead": self.bubble_overhead,
            "bubble_definition": BUBBLE_DEFINITION,
            "peak_allocated_bytes": list(self.peak_allocated),
            "device_memory_bytes": self.capacity,
            "breakdown_s": dict(self.breakdown),
            "memory_bytes": dict(self.memory),
            "notes": list(self.notes),
        }
