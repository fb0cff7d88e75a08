"""Two or more jobs on one cluster: each one's step alone and beside the others.

    job 1   |──── step ────|──── step ────|──── step ────|
    job 2   |─ step ─|── step ──|─ step ─|── step ──|─ st      until the slowest has done three

All start together, and each begins its next step at once, so that the slower job's steps meet the
faster one's at several places of its pattern. Jobs that share no link do not slow each other, by
exactly nothing. Streams that come every so many steps add their mean cost (`streams_together`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parsim.cluster.hardware import System
from parsim.plan import Plan
from parsim.sim.link_use import (
    Bottleneck,
    ClassUse,
    LinkCurve,
    bottleneck,
    class_uses,
    link_curves,
)
from parsim.sim.mixed_ready import MixedReady
from parsim.sim.placed_jobs import JobAt, PlacedJobs, Seen
from parsim.sim.repeated_steps import AnyReady
from parsim.sim.streams_together import Steady, StreamBeside, streams_alone, streams_together
from parsim.timeline import Span, Timeline, ordered

LEAST_STEPS = 3
"""Steps that every job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBeside:
    """Seconds of a job's step: by tier B, alone on its nodes' links, and the mean beside others.

    `alone` and `together` are with its streams, and `together` also with those of the others;
    `longest` and `steps` are of the steps without a periodic one.
    """

    name: str
    plan: Plan
    nodes: tuple[int, ...]
    closed: float
    alone: float
    together: float
    longest: float
    steps: int
    streams: tuple[StreamBeside, ...] = ()

    @property
    def slowdown(self) -> float:
        """Together over alone, less one: 0 where the others do not matter."""
        return self.together / self.alone - 1.0

    def to_json(self) -> dict[str, Any]:
        """One entry of `jobs`."""
        found = {
            "name": self.name,
            "plan": self.plan.label(),
            "nodes": list(self.nodes),
            "tier_b_s": self.closed,
            "alone_s": self.alone,
            "together_s": self.together,
            "longest_s": self.longest,
            "slowdown": self.slowdown,
            "steps": self.steps,
        }
        return found | ({"background": [s.to_json() for s in self.streams]} if self.streams else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTogether:
    """What jobs make of each other; `bottleneck` is among the links that several of them use.

    Its seconds, and those of `classes`, are of the `seconds` that were run; 0 and none where no
    link is shared.
    """

    jobs: tuple[JobBeside, ...]
    seconds: float
    shared_links: int
    bottleneck: Bottleneck | None
    classes: tuple[ClassUse, ...]

    def to_json(self) -> dict[str, Any]:
        """The block `together` of `parsim simulate --beside --json`."""
        return {
            "jobs": [one.to_json() for one in self.jobs],
            "simulated_s": self.seconds,
            "shared_links": self.shared_links,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
            "classes": [one.to_json() for one in self.classes],
        }


def jobs_together(
    jobs: Sequence[JobAt],
    system: System,
    *,
    failed: Sequence[str] = (),
    storage: float | None = None,
) -> JobsTogether:
    """Run several jobs' steps in tier C on the links of one cluster.

    Args:
        jobs: each on its nodes; jobs on one node take its devices in this order.
        system: the whole nodes, where a job does not say of which kind its are, and the switches.
        failed: parts and cables of the shared cluster that are out of order.
        storage: bandwidth of its storage, bytes/s, where streams use it.

    Raises:
        InputError: nodes that do not fit a job, or have too few devices left.
        PlanError: a plan that is not legal.
        CatalogError: a fabric that cannot be built.
    """
    placed, every = PlacedJobs(jobs, system, failed, storage), range(len(jobs))
    traffic = placed.fabric(every).traffic
    shared = [link for link, users in enumerate(traffic.users) if len(users) > 1]
    alone = [placed.alone(job) for job in every]
    apart = [streams_alone(placed, job, alone[job]) for job in every]
    if not shared:
        found = [_beside(placed, job, (alone[job],), alone[job], apart, apart) for job in every]
        return JobsTogether(
            jobs=tuple(found), seconds=0.0, shared_links=0, bottleneck=None, classes=()
        )
    steady = Steady(placed, LEAST_STEPS)
    fullest, classes = bottleneck(steady.fabric, shared), class_uses(steady.fabric)
    beside = [streams_together(placed, job, steady) for job in every]
    return JobsTogether(
        jobs=tuple(
            _beside(placed, job, steady.steps[job], alone[job], apart, beside) for job in every
        ),
        seconds=steady.seconds,
        shared_links=sum(traffic.folded[link] for link in shared),
        bottleneck=fullest,
        classes=classes,
    )


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
    placed, every = PlacedJobs(jobs, system, failed, storage), range(len(jobs))
    seen: Seen = []
    fabric = placed.fabric(every, seen)
    spans: list[Span] = []
    labels: dict[int, str] = {}
    first = 0
    ran_jobs = placed.start(fabric, every)
    for one, ran in zip(jobs, ran_jobs, strict=True):
        for place, stream in enumerate(one.streams):
            if stream.every > 1:
                ran.stream(place)
    fabric.env.run(until=fabric.env.all_of([ran.until(LEAST_STEPS) for ran in ran_jobs]))
    fabric.links.settle()
    for one, ready, ran in zip(jobs, placed.ready, ran_jobs, strict=True):
        spans += [
            span._replace(rank=span.rank + first) for step in ran.ended for span in step.spans
        ]
        said = _lanes(ready)
        labels |= {first + lane: f"{one.name}: {text}" for lane, text in enumerate(said)}
        first += len(said)
    meta = {
        "system": system.name,
        "plan": " | ".join(f"{one.name}: {one.plan.label()}" for one in jobs),
        "contention": "tier C, jobs that share a fabric",
        "rank_labels": labels,
    }
    return Timeline(spans=ordered(spans), meta=meta), link_curves(fabric, seen)


Streams = Sequence[Sequence[StreamBeside]]
"""The streams of each job."""


def _beside(
    placed: PlacedJobs,
    job: int,
    seconds: Sequence[float],
    alone: float,
    apart: Streams,
    beside: Streams,
) -> JobBeside:
    """A job's steps, with its streams' costs where it is alone and all streams' beside the others.

    Args:
        placed: all jobs.
        job: which of them.
        seconds: its steps beside the others.
        alone: its step.
        apart: streams, each job's without the others.
        beside: streams beside all jobs.
    """
    one = placed.jobs[job]
    together = alone if all(value == alone for value in seconds) else float(np.mean(seconds))
    late = sum(
        stream.cost.cost if owner == job else stream.others.get(one.name, 0.0)
        for owner, streams in enumerate(beside)
        for stream in streams
    )
    return JobBeside(
        name=one.name,
        plan=one.plan,
        nodes=one.nodes,
        closed=placed.ready[job].alone,
        alone=alone + sum(stream.cost.cost for stream in apart[job]),
        together=together + late,
        longest=max(seconds),
        steps=len(seconds),
        streams=tuple(beside[job]),
    )


def _lanes(ready: AnyReady) -> list[str]:
    """What each lane of a job shows."""
    if isinstance(ready, MixedReady):
        return list(ready.labels.values())
    return [f"rank {rank}" for rank in range(ready.plan.pp)]
