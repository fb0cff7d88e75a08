"""Rows of a comparison of schedules: one schedule each, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parsim.results import Result
from parsim.schedule import Schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.messages import senders
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

    @classmethod
    def of(cls, schedule: Schedule, timeline: Timeline) -> ScheduleRow:
        """What a schedule and the times of its actions say."""
        share = schedule.pp / schedule.depth
        by_rank = [list(timeline.on(rank)) for rank in timeline.ranks]
        busy = [sum(span.duration for span in spans) for spans in by_rank]
        spans = [max(s.end for s in row) - min(s.start for s in row) for row in by_rank]
        idle = 1.0 - sum(busy) / len(busy) / timeline.end
        within = max(1.0 - worked / span for worked, span in zip(busy, spans, strict=True))
        pairs = zip(inflight_counts(schedule), schedule.guests, strict=True)
        activations = (max(map(sum, counts)) * share + others for counts, others in pairs)
        return cls(
            name=schedule.name,
            v=schedule.v,
            makespan=timeline.end,
            bubble_fraction=_share(idle),
            span_bubble=_share(within),
            activations=tuple(map(float, activations)),
            weights=(schedule.copies,) * schedule.pp,
            messages=_messages_sent(schedule),
            timeline=timeline,
        )

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


def _share(value: float) -> float:
    """A share that rounding may have left a little off 0."""
    return 0.0 if abs(value) < 1e-12 else value


def _messages_sent(schedule: Schedule) -> int:
    """Messages between ranks in a step: results that cross ranks, activations kept elsewhere."""
    above, below = senders(schedule)
    stages = range(schedule.num_stages)
    each = (len(schedule.microbatches_of(stage)) for stage in stages)
    moved = sum((move.evicted >= 0) + (move.loaded >= 0) for move in schedule.moves.values())
    return moved + sum(
        count * ((above[stage] >= 0) + (below[stage] >= 0))
        for stage, count in zip(stages, each, strict=True)
    )
