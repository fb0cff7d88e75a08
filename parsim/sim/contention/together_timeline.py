"""What every rank of jobs on one cluster does, drawn one job below the other.

job 1, rank 0  | F B F B   F B F B ...
job 1, rank 1  |   F B F B   F B ...
job 2, rank 0  | F   B   F   B ...
"""

from __future__ import annotations

from collections.abc import Sequence

from parsim.cluster.hardware import System
from parsim.sim.contention.jobs_together import LEAST_STEPS
from parsim.sim.contention.link_use import LinkCurve, LoadHistory, link_curves
from parsim.sim.contention.placed_jobs import JobAt, PlacedJobs
from parsim.sim.events.ready_step import ReadyStep
from parsim.sim.events.repeated_steps import RepeatedSteps
from parsim.sim.step.lanes import has_classes, lane_labels
from parsim.timelines.timeline import Span, Timeline, ordered


def together_timeline(
    jobs: Sequence[JobAt],
    system: System,
    *,
    failed: Sequence[str] = (),
    storage: float | None = None,
) -> tuple[Timeline, tuple[LinkCurve, ...]]:
    """What every rank of every job does, the jobs one below the other, and what links carry.

    Periodic streams begin with the first steps.

    Raises: as `jobs_together`.
    """
    placed, every_job = PlacedJobs(jobs, system, failed, storage), range(len(jobs))
    history: LoadHistory = []
    fabric = placed.fabric(every_job, history)
    running = placed.start(fabric, every_job)
    for steps in running:
        steps.periodic_streams()
    fabric.env.run(until=fabric.env.all_of([steps.until(LEAST_STEPS) for steps in running]))
    fabric.links.settle()
    spans, labels = _spans_below_each_other(placed, running)
    meta = {
        "system": system.name,
        "plan": " | ".join(f"{job.name}: {job.plan.label()}" for job in jobs),
        "contention": "tier C, jobs that share a fabric",
        "rank_labels": labels,
    }
    return Timeline(spans=ordered(spans), meta=meta), link_curves(fabric, history)


def _spans_below_each_other(
    placed: PlacedJobs, running: Sequence[RepeatedSteps]
) -> tuple[list[Span], dict[int, str]]:
    """All jobs' spans, on lanes that follow those of the job before, and the lanes' labels."""
    spans: list[Span] = []
    labels: dict[int, str] = {}
    first = 0
    for job, ready, steps in zip(placed.jobs, placed.ready, running, strict=True):
        spans += [
            span._replace(rank=span.rank + first) for ran in steps.ended for span in ran.spans
        ]
        lanes = _lanes(ready)
        labels |= {first + lane: f"{job.name}: {text}" for lane, text in enumerate(lanes)}
        first += len(lanes)
    return spans, labels


def _lanes(ready: ReadyStep) -> list[str]:
    """What each lane of a job shows."""
    if has_classes(ready.step):
        return list(lane_labels(ready.step).values())
    return [f"rank {rank}" for rank in range(ready.plan.pp)]
