"""Rows of a comparison of schedules: one schedule each, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.results import Result
from parsim.sim.schedules.asynchronous import AsynchronousRow
from parsim.timelines.timeline import Timeline

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InSeconds:
    """What a scenario's plan takes with a schedule: seconds, bytes, and whether that fits."""

    step_time: float
    peak_allocated: float
    fit: str

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "step_time_s": self.step_time,
            "peak_allocated_bytes": self.peak_allocated,
            "fit": self.fit,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """One schedule of the table.

    `makespan` is from the first start to the last end in units, or seconds of a plan;
    `bubble_fraction` the idle share of it, mean over ranks, and `bubble_overhead` the same idle
    time over the busy time. `span_bubble` is the idle share between a rank's own first start and
    last end, of the rank where it is largest. `activations` are the most micro-batches that each
    rank holds at once, one of which is a micro-batch on all of a rank's layers; `weights` how many
    copies of its layers' weights each rank holds; `messages` how many are sent in all.
    """

    name: str
    v: int
    makespan: float
    bubble_fraction: float
    span_bubble: float
    activations: tuple[float, ...]
    weights: tuple[int, ...]
    messages: int
    timeline: Timeline
    in_seconds: InSeconds | None = None

    @property
    def bubble_overhead(self) -> float:
        """Idle over busy time."""
        return self.bubble_fraction / (1.0 - self.bubble_fraction)

    def to_json(self) -> dict[str, Any]:
        """Plain data; a plan's seconds and bytes only where there is a plan."""
        document: dict[str, Any] = {
            "schedule": self.name,
            "v": self.v,
            "makespan": self.makespan,
            "bubble_fraction": self.bubble_fraction,
            "bubble_overhead": self.bubble_overhead,
            "span_bubble_fraction": self.span_bubble,
            "activations_by_rank": list(self.activations),
            "weights_by_rank": list(self.weights),
            "messages": self.messages,
        }
        return document | (self.in_seconds.to_json() if self.in_seconds else {})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduleTable(Result):
    """The rows of a comparison, and why other schedules have none.

    `unit` says what a makespan is counted in: "unit" or "s". `asynchronous` are pipelines that
    never flush.
    """

    pp: int
    num_microbatches: int
    unit: str
    title: str
    rows: tuple[ScheduleRow, ...]
    refused: tuple[tuple[str, str], ...] = ()
    asynchronous: tuple[AsynchronousRow, ...] = ()

    @property
    def headline(self) -> str:
        """Sizes and the shortest schedule."""
        sizes = f"pp={self.pp}, {self.num_microbatches} micro-batches"
        late = [row.name for row in self.asynchronous]
        if not self.rows:
            return f"{sizes}: without flush: {', '.join(late)}"
        best = min(self.rows, key=lambda row: row.makespan)
        return f"{sizes}: {len(self.rows)} schedules, shortest {best.name}"

    def records(self) -> list[dict[str, Any]]:
        """One row per schedule."""
        return [row.to_json() for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """The document of `parsim schedules --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "schedules",
            "pp": self.pp,
            "num_microbatches": self.num_microbatches,
            "time_unit": self.unit,
            "schedules": self.records(),
            "asynchronous": [row.to_json() for row in self.asynchronous],
            "refused": [{"schedule": name, "reason": why} for name, why in self.refused],
        }
