"""A job's steps one after another on shared links, with its background streams beside them.

steps        |─── step ───|─── step ───|─── step ───|
each step    |─ batches ─|  |─ batches ─|  ...           a step ends when they have, too
rate         |───────────────────────────────────────    all the time
every 50     |────── checkpoint ──────|                  begins with a step, and may outlast it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import simpy

from parsim.arrays import Index
from parsim.cluster.background import Stream
from parsim.cluster.topology import Graph
from parsim.cluster.topology.storage import stream_links
from parsim.sim.events.fabric import Fabric, Process, SharedWire
from parsim.sim.events.ready_step import ReadyStep
from parsim.sim.events.step_run import StepRun
from parsim.sim.traffic.step_traffic import Role, Sent
from parsim.timelines.timeline import Span


class Ran(NamedTuple):
    """One step: when it began, how long it took, and what its ranks did."""

    begin: float
    seconds: float
    spans: tuple[Span, ...]

    @property
    def end(self) -> float:
        """When it ended."""
        return self.begin + self.seconds


def stream_role(index: int) -> Role:
    """The role of a job's stream of that number."""
    return Role("background", index)


def stream_kinds(
    graph: Graph, streams: Sequence[Stream], devices: Sequence[int], node_of: Index
) -> Mapping[Role, Sent]:
    """The kinds of traffic that the streams of some devices are; `node_of` each device's node.

    Raises:
        CatalogError: a stream has no way.
    """
    return {
        stream_role(index): Sent(
            usage=stream_links(graph, stream, devices, node_of),
            limit=stream.rate or np.inf,
            latency_share=0.0,
        )
        for index, stream in enumerate(streams)
    }


class RepeatedSteps:
    """Steps of a fabric's job; `ended` are those done, `took` the last seconds of each stream."""

    def __init__(
        self, fabric: Fabric, ready: ReadyStep, number: int = 0, streams: Sequence[Stream] = ()
    ) -> None:
        """Steps beside streams; those of `every` > 1 are left to the caller."""
        self.fabric, self.ready, self.number, self.streams = fabric, ready, number, streams
        self.ended: list[Ran] = []
        self.took: dict[int, float] = {}
        self._awaited: dict[int, simpy.Event] = {}

    def start(self) -> simpy.Process:
        """Begin the first step now; there is always another stream."""
        return self.fabric.env.process(self._steps())

    def until(self, count: int) -> simpy.Event:
        """The end of so many steps, which are not all done yet."""
        return self._awaited.setdefault(count, self.fabric.env.event())

    def stream(self, index: int) -> simpy.Process:
        """Send one stream's size from now on."""
        return self.fabric.env.process(self._stream(index))

    def periodic_streams(self) -> None:
        """Send once from now on what comes every so many steps."""
        for index, stream in enumerate(self.streams):
            if stream.every > 1:
                self.stream(index)

    def _steps(self) -> Process:
        env, number = self.fabric.env, self.number
        for index, stream in enumerate(self.streams):
            if stream.rate is not None:
                self.fabric.carry(number, stream_role(index), np.inf)
        while True:
            begin = env.now
            step = StepRun(SharedWire(self.fabric, number), self.ready.run)
            yield env.all_of([step.start(), *map(self.stream, self._each_step())])
            seconds = max(step.step_time, env.now - begin)
            self.ended.append(Ran(begin, seconds, tuple(step.spans)))
            if len(self.ended) in self._awaited:
                self._awaited.pop(len(self.ended)).succeed()
            yield env.timeout(max(begin + seconds - env.now, 0.0))

    def _each_step(self) -> list[int]:
        every = enumerate(self.streams)
        return [i for i, stream in every if stream.size is not None and stream.every == 1]

    def _stream(self, index: int) -> Process:
        begin, size = self.fabric.env.now, self.streams[index].size
        yield self.fabric.carry(self.number, stream_role(index), size or 0.0)
        self.took[index] = self.fabric.env.now - begin
