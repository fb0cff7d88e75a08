"""What a periodic stream of one job costs that job and the others on its fabric.

    job 1, stream every 50   |─ step + checkpoint ─|── step ──|── step ──|       until it is sent
    job 2                    |── step ──|── step ──|── step ──|── step ──|
    both without it          |─ step ─|─ step ─|─ step ─| ...                    as many steps

    lost by a job = end of its last step beside the stream - end of as many without
    cost a step   = lost / its steps between two of the stream's transfers

All jobs begin together, and the stream with them. Where a transfer outlasts the steps between two
of it, the next one waits: then the owner's pace is the transfer's, and the others always have it
beside them. Of a transfer that outlasts `MOST_STEPS` of its owner's steps these are run, and the
others taken to go on like them.

Source: the flows of tier C, as for one job (`stream_cost`).
Leaves out: that streams of several periods may meet; where in each other's steps the jobs are then;
that the others have an owner which waits for its transfer less often beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.sim.contention.link_use import bottleneck
from parsim.sim.contention.placed_jobs import PlacedJobs
from parsim.sim.contention.stream_cost import (
    MOST_STEPS,
    StreamCost,
    periodic_cost,
    stream_path,
    unfinished_times,
)
from parsim.sim.events.fabric import Fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBeside:
    """A job's stream beside all jobs: what it costs that job's mean step, and each other's."""

    cost: StreamCost
    others: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """One entry of a job's `background`."""
        return {**self.cost.to_json(), "mean_cost_per_step_of_others_s": dict(self.others)}


class SteadySteps:
    """All jobs together, without periodic streams: run as long as somebody asks for later steps."""

    def __init__(self, placed: PlacedJobs, least: int) -> None:
        """Run until each job has ended so many steps."""
        every_job = range(len(placed.jobs))
        self.fabric = placed.fabric(every_job)
        self.running = placed.run(self.fabric, every_job, least)
        self.seconds = float(self.fabric.env.now)
        self.steps = [tuple(ran.seconds for ran in steps.ended) for steps in self.running]
        self.took = [dict(steps.took) for steps in self.running]

    def mean(self, job: int) -> float:
        """Mean of a job's first steps, seconds."""
        return sum(self.steps[job]) / len(self.steps[job])

    def end(self, job: int, count: int) -> float:
        """When a job has ended so many steps."""
        steps = self.running[job]
        if len(steps.ended) < count:
            self.fabric.env.run(until=steps.until(count))
        return steps.ended[count - 1].end


def streams_alone(placed: PlacedJobs, job: int, steady: float) -> tuple[StreamBeside, ...]:
    """What a job's periodic streams cost where no other job is on its links."""
    owner, ready = placed.jobs[job], placed.ready[job]
    others = {other.name: 0.0 for other in placed.jobs if other is not owner}
    return tuple(
        StreamBeside(
            cost=periodic_cost(placed.graph, ready, owner.streams, index, steady),
            others=others,
        )
        for index, stream in enumerate(owner.streams)
        if stream.every > 1
    )


def streams_together(placed: PlacedJobs, job: int, steady: SteadySteps) -> tuple[StreamBeside, ...]:
    """What each stream of a job costs beside the other jobs."""
    return tuple(
        _periodic(placed, job, index, steady)
        if stream.every > 1
        else _in_the_step(placed, job, index, steady)
        for index, stream in enumerate(placed.jobs[job].streams)
    )


def _in_the_step(placed: PlacedJobs, job: int, index: int, steady: SteadySteps) -> StreamBeside:
    """A stream of every step, whose cost the steps of all jobs have in them."""
    fullest = bottleneck(steady.fabric, stream_path(steady.fabric, index, job))
    stream, seconds = placed.jobs[job].streams[index], steady.took[job].get(index)
    cost = StreamCost.in_the_step(stream, seconds, steady.mean(job), fullest)
    return StreamBeside(cost=cost, others={})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfer:
    """One transfer beside all jobs: its seconds, and those that each job lost by it."""

    seconds: float
    lost: tuple[float, ...]
    fabric: Fabric


def _periodic(placed: PlacedJobs, job: int, index: int, steady: SteadySteps) -> StreamBeside:
    """Run one transfer, and spread what each job loses by it over the steps between two."""
    stream, mean = placed.jobs[job].streams[index], steady.mean(job)
    transfer = _transfer(placed, job, index, steady)
    seconds, lost = transfer.seconds, transfer.lost
    between = stream.every * mean
    overdue = seconds > between + lost[job]
    pace = seconds if overdue else between
    cost = seconds / stream.every - mean if overdue else lost[job] / stream.every
    return StreamBeside(
        cost=StreamCost(
            stream=stream,
            seconds=seconds,
            steps=seconds / mean,
            cost=max(cost, 0.0),
            overdue=overdue,
            bottleneck=bottleneck(transfer.fabric, stream_path(transfer.fabric, index, job)),
        ),
        others={
            other.name: max(lost[number], 0.0) * steady.mean(number) / pace
            for number, other in enumerate(placed.jobs)
            if number != job
        },
    )


def _transfer(placed: PlacedJobs, job: int, index: int, steady: SteadySteps) -> _Transfer:
    """Send a stream's size once beside all jobs; each then ends the step that it is in."""
    every_job = range(len(placed.jobs))
    fabric = placed.fabric(every_job)
    env, running = fabric.env, placed.start(fabric, every_job)
    transfer = running[job].stream(index)
    env.run(until=env.any_of([transfer, running[job].until(MOST_STEPS)]))
    counts = [len(steps.ended) + 1 for steps in running]
    env.run(until=env.all_of([steps.until(n) for steps, n in zip(running, counts, strict=True)]))
    seconds, times = env.now, 1.0
    if transfer.is_alive:
        times = unfinished_times(fabric, placed.jobs[job].streams[index], index, job)
    else:
        seconds = running[job].took[index]
    fabric.links.settle()
    return _Transfer(
        seconds=seconds * times,
        lost=tuple(
            times * (steps.ended[n - 1].end - steady.end(number, n))
            for number, (steps, n) in enumerate(zip(running, counts, strict=True))
        ),
        fabric=fabric,
    )
