"""Pipelines that never flush: steady rate, fill, drain, versions and staleness per stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from parsim.errors import ScheduleError
from parsim.schedule import Kind
from parsim.schedule.versions import RULES, Versions
from parsim.sim.program import by_recurrence, memory_curves, program_timeline
from parsim.sim.stages.prices import StagePrices, steady_state
from parsim.sim.stages.run import TaskRun, shown_microbatches
from parsim.strategy.stage_tasks import task_name
from parsim.strategy.weight_versions import without_flush
from parsim.timelines.timeline import ACTIONS, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousRow:
    """One rule of weight versions; times in units or seconds, memory in versions or bytes.

    `steady` is the time between micro-batches in the steady state, `fill` that until the last stage
    begins, `drain` that between its last backward and the end. `versions`, `delays` (in updates)
    and `peak` are by stage. `in_seconds` says that a plan's seconds and bytes are meant.
    """

    name: str
    batch: int
    steady: float
    fill: float
    drain: float
    versions: tuple[int, ...]
    delays: tuple[int, ...]
    activations: tuple[int, ...]
    peak: tuple[float, ...]
    timeline: Timeline
    in_seconds: bool = False

    @property
    def what(self) -> str:
        """The rule in words."""
        return RULES[self.name]

    def to_json(self) -> dict[str, Any]:
        """Plain data: a plan's seconds and bytes have them in their names, units have not."""
        suffix = "_s" if self.in_seconds else ""
        document: dict[str, Any] = {
            "rule": self.name,
            "batch": self.batch,
            f"steady_per_microbatch{suffix}": self.steady,
            f"fill{suffix}": self.fill,
            f"drain{suffix}": self.drain,
            "versions_by_rank": list(self.versions),
            "delay_in_updates_by_rank": list(self.delays),
            "activations_by_rank": list(self.activations),
        }
        if self.in_seconds:
            document["peak_allocated_bytes"] = max(self.peak)
            document["peak_allocated_bytes_by_rank"] = list(self.peak)
        return document


def simulated(rules: int, pp: int, num_microbatches: int) -> int:
    """About how many micro-batches on stages so many rows simulate.

    A rule has those asked for, and ten times as many as stages for its steady state.
    """
    return rules * pp * (num_microbatches + 10 * pp)


def unit_versions(rule: str, pp: int) -> Versions:
    """A rule without a plan: 2BW updates once in as many micro-batches as there are stages."""
    return Versions(rule=rule, pp=pp, batch=pp if rule == "pipedream_2bw" else 1)


def planned_row(run: TaskRun) -> AsynchronousRow:
    """What a plan that never flushes costs, in seconds, and the bytes that `simulate` says.

    Raises:
        ScheduleError: its schedule flushes.
    """
    versions = run.versions
    if versions is None:
        raise ScheduleError(f"schedule='{run.plan.schedule}' flushes its pipeline")
    count = shown_microbatches(versions, run.plan.num_microbatches)
    row = asynchronous_row(versions, run.prices, count)
    return replace(row, peak=tuple(map(float, run.peaks)), in_seconds=True)


def asynchronous_row(
    versions: Versions, prices: StagePrices, num_microbatches: int
) -> AsynchronousRow:
    """What a rule costs: the program of so many micro-batches, and twice as many for the rate."""
    pp = versions.pp
    priced = prices.on(without_flush(versions, num_microbatches))
    end, stages = by_recurrence(priced), range(pp)
    begins = float(end.times[task_name(pp - 1, Kind.F, 0)].start[0, 0])
    last = float(end.times[task_name(pp - 1, Kind.B, num_microbatches - 1)].end[0, 0])
    peaks = [max(curve.bytes) for curve in memory_curves(priced, end)]
    return AsynchronousRow(
        name=versions.rule,
        batch=versions.batch,
        steady=steady_state(versions, prices),
        fill=begins,
        drain=float(end.updated[0]) - last,
        versions=tuple(versions.kept(stage) for stage in stages),
        delays=tuple(versions.delay(stage) for stage in stages),
        activations=tuple(min(versions.warmups[stage] + 1, num_microbatches) for stage in stages),
        peak=tuple(float(peak) for peak in peaks),
        timeline=_by_version(program_timeline(priced), versions),
    )


def _by_version(timeline: Timeline, versions: Versions) -> Timeline:
    """The actions alone, numbered by the version of their weights instead of their micro-batch."""
    spans = tuple(
        span._replace(microbatch=versions.used(span.stage, span.microbatch))
        for span in timeline.spans
        if span.kind in ACTIONS
    )
    return Timeline(spans=spans, meta=timeline.meta)
