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

from parsim.sim.fabric import Fabric
from parsim.sim.link_use import bottleneck
from parsim.sim.placed_jobs import PlacedJobs
from parsim.sim.repeated_steps import stream_role
from parsim.sim.stream_cost import MOST_STEPS, StreamCost, links_of, periodic_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBeside:
    """A job's stream beside all jobs: what it costs that job's mean step, and each other's."""

    cost: StreamCost
    others: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """One entry of a job's `background`."""
        return {**self.cost.to_json(), "mean_cost_per_step_of_others_s": dict(self.others)}


class Steady:
    """All jobs together, without periodic streams: run as long as somebody asks for later steps."""

    def __init__(self, placed: PlacedJobs, least: int) -> None:
        """Run until each job has ended so many steps."""
        every = range(len(placed.jobs))
        self.fabric = placed.fabric(every)
        self.running = placed.run(self.fabric, every, least)
        self.seconds = float(self.fabric.env.now)
        self.steps = [tuple(ran.seconds for ran in one.ended) for one in self.running]
        self.took = [dict(one.took) for one in self.running]

    def mean(self, job: int) -> float:
        """Mean of a job's first steps, seconds."""
        return sum(self.steps[job]) / len(self.steps[job])

    def end(self, job: int, count: int) -> float:
        """When a job has ended so many steps."""
        one = self.running[job]
        if len(one.ended) < count:
            self.fabric.env.run(until=one.until(count))
        return one.ended[count - 1].end


def streams_alone(placed: PlacedJobs, job: int, steady: float) -> tuple[StreamBeside, ...]:
    """What a job's periodic streams cost where no other job is on its links."""
    one, ready = placed.jobs[job], placed.ready[job]
    others = {other.name: 0.0 for other in placed.jobs if other is not one}
    return tuple(
        StreamBeside(
            cost=periodic_cost(
                placed.graph, ready, one.streams, place, steady, ready.sent[stream_role(place)]
            ),
            others=others,
        )
        for place, stream in enumerate(one.streams)
        if stream.every > 1
    )


def streams_together(placed: PlacedJobs, job: int, steady: Steady) -> tuple[StreamBeside, ...]:
    """What each stream of a job costs beside the others; of every step's it stands in the steps."""
    found = []
    for place, stream in enumerate(placed.jobs[job].streams):
        if stream.every > 1:
            found.append(_periodic(placed, job, place, steady))
        else:
            found.append(_in_the_step(placed, job, place, steady))
    return tuple(found)


def _in_the_step(placed: PlacedJobs, job: int, place: int, steady: Steady) -> StreamBeside:
    seconds = steady.took[job].get(place)
    return StreamBeside(
        cost=StreamCost(
            stream=placed.jobs[job].streams[place],
            seconds=seconds,
            steps=1.0 if seconds is None else seconds / steady.mean(job),
            cost=0.0,
            overdue=False,
            bottleneck=bottleneck(steady.fabric, links_of(steady.fabric, place, job)),
        ),
        others={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfer:
    """One transfer beside all jobs: its seconds, and those that each job lost by it."""

    seconds: float
    lost: tuple[float, ...]
    fabric: Fabric


def _periodic(placed: PlacedJobs, job: int, place: int, steady: Steady) -> StreamBeside:
    stream, mean = placed.jobs[job].streams[place], steady.mean(job)
    sent = _transfer(placed, job, place, steady)
    between = stream.every * mean
    overdue = sent.seconds > between + sent.lost[job]
    pace = sent.seconds if overdue else between
    own = sent.seconds / stream.every - mean if overdue else sent.lost[job] / stream.every
    return StreamBeside(
        cost=StreamCost(
            stream=stream,
            seconds=sent.seconds,
            steps=sent.seconds / mean,
            cost=max(own, 0.0),
            overdue=overdue,
            bottleneck=bottleneck(sent.fabric, links_of(sent.fabric, place, job)),
        ),
        others={
            one.name: max(sent.lost[other], 0.0) * steady.mean(other) / pace
            for other, one in enumerate(placed.jobs)
            if other != job
        },
    )


def _transfer(placed: PlacedJobs, job: int, place: int, steady: Steady) -> _Transfer:
    """Send a stream's size once beside all jobs; each then ends the step that it is in."""
    every = range(len(placed.jobs))
    fabric = placed.fabric(every)
    env, running = fabric.env, placed.start(fabric, every)
    transfer = running[job].stream(place)
    env.run(until=env.any_of([transfer, running[job].until(MOST_STEPS)]))
    counts = [len(one.ended) + 1 for one in running]
    env.run(until=env.all_of([one.until(n) for one, n in zip(running, counts, strict=True)]))
    seconds, times = env.now, 1.0
    if transfer.is_alive:
        kind = fabric.traffic.numbers[job][stream_role(place)]
        size = placed.jobs[job].streams[place].size or 1.0
        times = 1.0 / max(1.0 - fabric.links.left(kind) / size, 1e-9)
    else:
        seconds = running[job].took[place]
    fabric.links.settle()
    return _Transfer(
        seconds=seconds * times,
        lost=tuple(
            times * (one.ended[n - 1].end - steady.end(other, n))
            for other, (one, n) in enumerate(zip(running, counts, strict=True))
        ),
        fabric=fabric,
    )
