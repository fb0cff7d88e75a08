"""What background streams cost a training step, on average over the steps between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parsim.cluster.background import Stream
from parsim.cluster.topology import Graph
from parsim.sim.collective_flows import slowest
from parsim.sim.fabric import Fabric
from parsim.sim.link_use import Bottleneck, bottleneck
from parsim.sim.repeated_steps import AnyReady, RepeatedSteps, stream_role
from parsim.sim.step_traffic import Sent

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

    def to_json(self) -> dict[str, Any]:
        """One entry of `background`."""
        one = self.stream
        return {
            "name": one.name,
            "from": one.source,
            "to": one.target,
            "bytes": one.size,
            "rate_bytes_per_s": one.rate,
            "every_steps": one.every,
            "transfer_s": self.seconds,
            "steps_of_transfer": self.steps,
            "mean_cost_per_step_s": self.cost,
            "overdue": self.overdue,
            "bottleneck": self.bottleneck and self.bottleneck.to_json(),
        }


def links_of(fabric: Fabric, place: int, number: int = 0) -> Sequence[int]:
    """The folded links of a job's stream."""
    kind, flows = fabric.traffic.numbers[number][stream_role(place)], fabric.traffic.flows
    found: list[int] = flows.links[flows.bounds[kind] : flows.bounds[kind + 1]].tolist()
    return found


def periodic_cost(
    graph: Graph, ready: AnyReady, streams: Sequence[Stream], place: int, steady: float, sent: Sent
) -> StreamCost:
    """Steps beside one transfer of a stream that comes every so many steps.

    (sum of the n steps beside it - n steady) / every, and where the transfer takes longer than
    `every` steps: transfer / every - steady, for the next one waits.

    Args:
        graph: the links.
        ready: the job's step, its streams' kinds among what it sends.
        streams: all of the job.
        place: which of them.
        steady: seconds of a step without it.
        sent: its links.

    Source: the flows of tier C.
    Leaves out: what a checkpoint takes on the device and the host before it is sent; that other
    streams of the same period may begin with the same step.
    """
    one = streams[place]
    idle = (one.size or 0.0) * slowest(graph, sent.usage)
    if idle > one.every * steady:
        return StreamCost(
            stream=one, seconds=idle, steps=idle / steady, cost=idle / one.every - steady,
            overdue=True, bottleneck=_narrowest(graph, sent, idle),
        )  # fmt: skip
    fabric = Fabric([ready.sent], graph)
    steps = RepeatedSteps(fabric, ready, 0, streams)
    steps.start()
    transfer = steps.stream(place)
    fabric.env.run(until=fabric.env.any_of([transfer, steps.until(MOST_STEPS)]))
    if transfer.is_alive:
        done = 1.0 - fabric.links.left(fabric.traffic.numbers[0][stream_role(place)]) / (
            one.size or 1.0
        )
        times = 1.0 / max(done, 1e-9)
        seconds = fabric.env.now * times
    else:
        seconds, times = steps.took[place], 1.0
        fabric.env.run(until=steps.until(len(steps.ended) + 1))
    fabric.links.settle()
    late = times * sum(ran.seconds - steady for ran in steps.ended)
    overdue = seconds > one.every * steady + late
    cost = seconds / one.every - steady if overdue else late / one.every
    return StreamCost(
        stream=one, seconds=seconds, steps=seconds / steady, cost=max(cost, 0.0), overdue=overdue,
        bottleneck=bottleneck(fabric, links_of(fabric, place)),
    )  # fmt: skip


def _narrowest(graph: Graph, sent: Sent, seconds: float) -> Bottleneck:
    """The link that a transfer fills for all of its time."""
    share = {link: units / float(graph.effective[link]) for link, units in sent.usage.items()}
    worst = max(share, key=lambda link: (share[link], -link))
    alike = sum(abs(value / share[worst] - 1.0) < 1e-9 for value in share.values())
    found = graph.link(worst)
    return Bottleneck(link=found.name, link_class=found.link_class, saturated=seconds, alike=alike,
                      busy=seconds, used=1.0)  # fmt: skip
