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
from parsim.sim.contention.link_use import (
    Bottleneck,
    ClassUse,
    bottleneck,
    class_uses,
)
from parsim.sim.contention.placed_jobs import JobAt, PlacedJobs
from parsim.sim.contention.streams_together import (
    SteadySteps,
    StreamBeside,
    streams_alone,
    streams_together,
)

LEAST_STEPS = 3
"""Steps that every job ends."""

Streams = Sequence[Sequence[StreamBeside]]
"""The streams of each job."""


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
        document = {
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
        if self.streams:
            document["background"] = [stream.to_json() for stream in self.streams]
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTogether:
    """What jobs make of each other; `bottleneck` is among the links that several of them use.

    Its seconds, and those of `classes`, are of the `seconds` that were run; 0 and none where no
    link is shared.
    """

    jobs: tuple[JobBeside, ...]
    seconds: float = 0.0
    shared_links: int = 0
    bottleneck: Bottleneck | None = None
    classes: tuple[ClassUse, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The block `together` of `parsim simulate --beside --json`."""
        return {
            "jobs": [job.to_json() for job in self.jobs],
            "simulated_s": self.seconds,
            "shared_links": self.shared_links,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
            "classes": [use.to_json() for use in self.classes],
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
    placed, every_job = PlacedJobs(jobs, system, failed, storage), range(len(jobs))
    traffic = placed.fabric(every_job).traffic
    shared = [link for link, users in enumerate(traffic.users) if len(users) > 1]
    alone = [placed.alone(job) for job in every_job]
    apart = [streams_alone(placed, job, alone[job]) for job in every_job]
    if not shared:
        return JobsTogether(
            jobs=tuple(
                _beside(placed, job, (alone[job],), alone[job], apart, apart) for job in every_job
            )
        )
    return _on_shared_links(placed, shared, alone, apart)


def _on_shared_links(
    placed: PlacedJobs, shared: Sequence[int], alone: Sequence[float], apart: Streams
) -> JobsTogether:
    """Run all jobs at once; links are asked before streams prolong the run.

    Args:
        placed: all jobs.
        shared: folded links that several of them use.
        alone: seconds of each job's step without the others.
        apart: what each job's streams cost without the others.
    """
    steady = SteadySteps(placed, LEAST_STEPS)
    fullest, classes = bottleneck(steady.fabric, shared), class_uses(steady.fabric)
    beside = [streams_together(placed, job, steady) for job in range(len(placed.jobs))]
    return JobsTogether(
        jobs=tuple(
            _beside(placed, job, steps, alone[job], apart, beside)
            for job, steps in enumerate(steady.steps)
        ),
        seconds=steady.seconds,
        shared_links=sum(steady.fabric.traffic.folded[link] for link in shared),
        bottleneck=fullest,
        classes=classes,
    )


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
        job: its number among them.
        seconds: its steps beside the others.
        alone: its step without them.
        apart: what each job's streams cost without the other jobs.
        beside: what they cost beside all jobs.
    """
    placed_job = placed.jobs[job]
    together = alone if all(value == alone for value in seconds) else float(np.mean(seconds))
    late = sum(
        stream.cost.cost if owner == job else stream.others.get(placed_job.name, 0.0)
        for owner, streams in enumerate(beside)
        for stream in streams
    )
    return JobBeside(
        name=placed_job.name,
        plan=placed_job.plan,
        nodes=placed_job.nodes,
        closed=placed.ready[job].alone,
        alone=alone + sum(stream.cost.cost for stream in apart[job]),
        together=together + late,
        longest=max(seconds),
        steps=len(seconds),
        streams=tuple(beside[job]),
    )
