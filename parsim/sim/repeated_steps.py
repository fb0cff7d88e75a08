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

from parsim.cluster.background import Stream
from parsim.cluster.topology import Graph
from parsim.cluster.topology.storage import stream_links
from parsim.sim.contended_step import ContendedStep
from parsim.sim.fabric import Fabric, Process
from parsim.sim.mixed_ready import MixedReady
from parsim.sim.mixed_step import MixedStep
from parsim.sim.ready_step import ReadyStep
from parsim.sim.step_traffic import Indices, Role, Sent
from parsim.timeline import Span

AnyReady = ReadyStep | MixedReady


class Ran(NamedTuple):
    """One step: when it began, how long it took, and what its ranks did."""

    begin: float
    seconds: float
    spans: tuple[Span, ...]

    @property
    def end(self) -> float:
        """When it ended."""
        return self.begin + self.seconds


def stream_role(place: int) -> Role:
    """The role of a job's stream of that place."""
    return Role("background", place)


def stream_kinds(
    graph: Graph, streams: Sequence[Stream], devices: Sequence[int], node_of: Indices
) -> Mapping[Role, Sent]:
    """The kinds of traffic that the streams of some devices are; `node_of` each device's node.

    Raises:
        CatalogError: a stream has no way.
    """
    return {
        stream_role(place): Sent(
            usage=stream_links(graph, one, devices, node_of),
            limit=one.rate or np.inf,
            latency_share=0.0,
        )
        for place, one in enumerate(streams)
    }


def _step(fabric: Fabric, ready: AnyReady, number: int) -> ContendedStep | MixedStep:
    if isinstance(ready, MixedReady):
        return MixedStep(fabric, ready, number)
    return ContendedStep(fabric, ready, number)


class RepeatedSteps:
    """Steps of a fabric's job; `ended` are those done, `took` the last seconds of each stream."""

    def __init__(
        self, fabric: Fabric, ready: AnyReady, number: int = 0, streams: Sequence[Stream] = ()
    ) -> None:
        """Steps beside streams; those of `every` > 1 are left to `stream`."""
        self.fabric, self.ready, self.number, self.streams = fabric, ready, number, streams
        self.ended: list[Ran] = []
        self.took: dict[int, float] = {}
        self._awaited: dict[int, simpy.Event] = {}

    def start(self) -> simpy.Process:
        """Begin the first step now; there is always another one."""
        return self.fabric.env.process(self._steps())

    def until(self, count: int) -> simpy.Event:
        """The end of so many steps, which are not all done yet."""
        return self._awaited.setdefault(count, self.fabric.env.event())

    def stream(self, place: int) -> simpy.Process:
        """Send one stream's size from now on."""
        return self.fabric.env.process(self._stream(place))

    def _steps(self) -> Process:
        env, number = self.fabric.env, self.number
        for place, one in enumerate(self.streams):
            if one.rate is not None:
                self.fabric.carry(number, stream_role(place), np.inf)
        while True:
            begin = env.now
            step = _step(self.fabric, self.ready, number)
            yield env.all_of([step.start(), *map(self.stream, self._each_step())])
            seconds = max(step.step_time, env.now - begin)
            self.ended.append(Ran(begin, seconds, tuple(step.spans)))
            if len(self.ended) in self._awaited:
                self._awaited.pop(len(self.ended)).succeed()
            yield env.timeout(max(begin + seconds - env.now, 0.0))

    def _each_step(self) -> list[int]:
        return [i for i, one in enumerate(self.streams) if one.size is not None and one.every == 1]

    def _stream(self, place: int) -> Process:
        begin, size = self.fabric.env.now, self.streams[place].size
        yield self.fabric.carry(self.number, stream_role(place), size or 0.0)
        self.took[place] = self.fabric.env.now - begin
