"""What traffic travels on: links that all steps share, or a wire that only waits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import simpy

from parsim.arrays import Array
from parsim.sim.links.collective_flows import LinkGraph
from parsim.sim.links.shared_links import SharedLinks
from parsim.sim.traffic.linked_traffic import link_traffic
from parsim.sim.traffic.step_traffic import Role, Sent

Process = Generator[simpy.Event, Any, None]
Watch = Callable[[float, Array], None]


class Fabric:
    """Links for the kinds of traffic of one or more jobs."""

    def __init__(
        self, jobs: Sequence[Mapping[Role, Sent]], graph: LinkGraph, watch: Watch | None = None
    ) -> None:
        """Links for some jobs.

        Args:
            jobs: the kinds of traffic of each.
            graph: the links.
            watch: called with time and loads (bytes/s of each folded link) when they change.
        """
        self.env = simpy.Environment()
        self.traffic = link_traffic(jobs, graph)
        self.links = SharedLinks(self.env, self.traffic.flows, self.traffic.groups, watch)

    def send(self, job: int, role: Role, seconds: float) -> Process:
        """Traffic that takes so many seconds on idle links; without a kind it just takes them."""
        number = self.traffic.numbers[job].get(role)
        if number is None or seconds <= 0.0:
            yield self.env.timeout(max(seconds, 0.0))
            return
        late = seconds * float(self.traffic.latency_share[number])
        yield self.env.timeout(late)
        yield self.links.send(number, (seconds - late) * float(self.traffic.limit[number]))

    def carry(self, job: int, role: Role, size: float) -> simpy.Event:
        """Send so many bytes for each unit of usage; the event comes when they are there."""
        return self.links.send(self.traffic.numbers[job][role], size)


class Wire(Protocol):
    """Carries traffic; on a `shared` one nobody knows beforehand how long it takes."""

    env: simpy.Environment
    shared: bool

    def send(self, role: Role, seconds: float) -> Process:
        """Traffic of a role that takes so many seconds where nothing else is under way."""
        ...


class QuietWire:
    """A wire on which everything takes its price: what the closed forms say."""

    shared = False

    def __init__(self) -> None:
        self.env = simpy.Environment()

    def send(self, role: Role, seconds: float) -> Process:
        """Wait for the price."""
        yield self.env.timeout(seconds)


class SharedWire:
    """The links of a fabric, for the job of that number."""

    shared = True

    def __init__(self, fabric: Fabric, number: int = 0) -> None:
        self.env, self.fabric, self.number = fabric.env, fabric, number

    def send(self, role: Role, seconds: float) -> Process:
        """Share the links of the role max-min fairly with all that is under way."""
        return self.fabric.send(self.number, role, seconds)
