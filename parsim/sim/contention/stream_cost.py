"""What background streams cost a training step, on average over the steps between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parsim.cluster.background import Stream
from parsim.cluster.topology import Graph
from parsim.sim.contention.link_use import Bottleneck, bottleneck
from parsim.sim.events.fabric import Fabric
from parsim.sim.events.ready_step import ReadyStep
from parsim.sim.events.repeated_steps import RepeatedSteps, stream_role
from parsim.sim.links.collective_flows import slowest
from parsim.sim.traffic.step_traffic import Sent

MOST_STEPS = 12
"""Steps of a long transfer that are run; those after them go on as these did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCost:
    """A stream beside steps: seconds of one transfer (None: it never ends), steps it lasts.

    `cost` is by how much it makes the mean step longer, seconds; of streams that run in every step
    that is in the step time already. `overdue`: it takes longer than the steps between two of it,
    which then wait for it. `bottleneck` is the link of its way that was full longest.
    """

    stream: Stream
    seconds: float | None
    steps: float
    cost: float
    overdue: bool
    bottleneck: Bottleneck | None

    @classmethod
    def in_the_step(
        cls, stream: Stream, seconds: float | None, step: float, fullest: Bottleneck | None
    ) -> StreamCost:
        """A stream of every step: its cost stands in the step time."""
        return cls(
            stream=stream,
            seconds=seconds,
            steps=1.0 if seconds is None else seconds / step,
            cost=0.0,
            overdue=False,
            bottleneck=fullest,
        )

    def to_json(self) -> dict[str, Any]:
        """One entry of `background`."""
        stream = self.stream
        return {
            "name": stream.name,
            "from": stream.source,
            "to": stream.target,
            "bytes": stream.size,
            "rate_bytes_per_s": stream.rate,
            "every_steps": stream.every,
            "transfer_s": self.seconds,
            "steps_of_transfer": self.steps,
            "mean_cost_per_step_s": self.cost,
            "overdue": self.overdue,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
        }


def stream_path(fabric: Fabric, index: int, job: int = 0) -> Sequence[int]:
    """The folded links of a job's stream."""
    kind, flows = fabric.traffic.numbers[job][stream_role(index)], fabric.traffic.flows
    links: list[int] = flows.links[flows.bounds[kind] : flows.bounds[kind + 1]].tolist()
    return links


def unfinished_times(fabric: Fabric, stream: Stream, index: int, job: int = 0) -> float:
    """How many times the bytes sent so far a stream's whole transfer is."""
    kind = fabric.traffic.numbers[job][stream_role(index)]
    done = 1.0 - fabric.links.left(kind) / (stream.size or 1.0)
    return 1.0 / max(done, 1e-9)


def periodic_cost(
    graph: Graph, ready: ReadyStep, streams: Sequence[Stream], index: int, steady: float
) -> StreamCost:
    """Steps beside one transfer of a stream that comes every so many steps.

    (sum of the n steps beside it - n steady) / every, and where the transfer takes longer than
    `every` steps: transfer / every - steady, for the next one waits.

    Args:
        graph: the links.
        ready: the job's step, its streams' kinds among what it sends.
        streams: all of the job.
        index: the stream's number among them.
        steady: seconds of a step without it.

    Source: the flows of tier C.
    Leaves out: what a checkpoint takes on the device and the host before it is sent; that other
    streams of the same period may begin with the same step.
    """
    stream, sent = streams[index], ready.sent[stream_role(index)]
    idle = (stream.size or 0.0) * slowest(graph, sent.usage)
    if idle > stream.every * steady:
        return StreamCost(
            stream=stream,
            seconds=idle,
            steps=idle / steady,
            cost=idle / stream.every - steady,
            overdue=True,
            bottleneck=_narrowest(graph, sent, idle),
        )
    return _simulated_cost(graph, ready, streams, index, steady)


def _simulated_cost(
    graph: Graph, ready: ReadyStep, streams: Sequence[Stream], index: int, steady: float
) -> StreamCost:
    """Run steps until the transfer has ended, or `MOST_STEPS`."""
    stream, fabric = streams[index], Fabric([ready.sent], graph)
    steps = RepeatedSteps(fabric, ready, 0, streams)
    seconds, times = _transferred(fabric, steps, stream, index)
    fabric.links.settle()
    late = times * sum(ran.seconds - steady for ran in steps.ended)
    overdue = seconds > stream.every * steady + late
    cost = seconds / stream.every - steady if overdue else late / stream.every
    return StreamCost(
        stream=stream,
        seconds=seconds,
        steps=seconds / steady,
        cost=max(cost, 0.0),
        overdue=overdue,
        bottleneck=bottleneck(fabric, stream_path(fabric, index)),
    )


def _transferred(
    fabric: Fabric, steps: RepeatedSteps, stream: Stream, index: int
) -> tuple[float, float]:
    """Seconds of a transfer beside steps, and how many times as long as what was run of it."""
    steps.start()
    transfer = steps.stream(index)
    fabric.env.run(until=fabric.env.any_of([transfer, steps.until(MOST_STEPS)]))
    if transfer.is_alive:
        times = unfinished_times(fabric, stream, index)
        return fabric.env.now * times, times
    seconds = steps.took[index]
    fabric.env.run(until=steps.until(len(steps.ended) + 1))
    return seconds, 1.0


def _narrowest(graph: Graph, sent: Sent, seconds: float) -> Bottleneck:
    """The link that a transfer fills for all of its time."""
    share = {link: units / float(graph.effective[link]) for link, units in sent.usage.items()}
    worst = max(share, key=lambda link: (share[link], -link))
    alike = sum(abs(value / share[worst] - 1.0) < 1e-9 for value in share.values())
    narrowest = graph.link(worst)
    return Bottleneck(
        link=narrowest.name,
        link_class=narrowest.link_class,
        saturated=seconds,
        alike=alike,
        busy=seconds,
        used=1.0,
    )
