"""What messages and collectives travel on: a wire that only waits, or links that all share."""

from __future__ import annotations

from typing import Protocol

import simpy

from parsim.sim.events.fabric import Fabric, Process
from parsim.sim.traffic.step_traffic import Role


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
