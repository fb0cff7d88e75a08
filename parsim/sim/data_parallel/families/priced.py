"""What a family of strategies makes of a plan's workers: a program with its prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from parsim.arrays import Array
from parsim.sim.data_parallel.server_wires import ServerWires
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.program import PricedProgram
from parsim.strategy import StepProgram


class HeldTogether(Protocol):
    """A model that several workers hold together, by its branches or by a layout."""

    def device_bytes(self, whole: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Bytes by role of a device and category, from those of a device with the whole model."""

    def limits(self, step: float) -> str:
        """What holds a step of so many seconds back, in words."""

    def notes(self) -> Iterator[str]:
        """What a reader must know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A program with its seconds; bytes that a worker sends and receives a step, and the servers'.

    `wires` are those of servers, where there are any. `synchronises` says that all workers wait for
    one another in each round or every so-many-th, `changes_training` that the same samples may
    train less or more than with all-reduced gradients. `carried` are the bytes of what travels, by
    the name of its price: of one worker's message, or of a collective, or one for each row of the
    price. `together` tells of a model that several workers hold together, `compute` seconds of a
    device's forwards and backwards in a step where they are not an equal share of a whole model's,
    and `layout` what documents show of a layout.
    """

    program: StepProgram
    seconds: dict[str, Array]
    sent: float
    received: float
    synchronises: bool = True
    changes_training: bool = True
    wires: ServerWires | None = None
    carried: Mapping[str, Array | float] = field(default_factory=dict)
    together: HeldTogether | None = None
    compute: tuple[float, float] | None = None
    layout: Mapping[str, object] | None = None

    @property
    def task_program(self) -> PricedProgram:
        """The program as the recurrence and the events take it."""
        return PricedProgram(program=self.program, seconds=self.seconds)


def compute_prices(
    workers: Workers, slowed: Array | float = 1.0, *, clips: bool = False
) -> dict[str, Array]:
    """Seconds of forward, backward and update of each worker, by the names of `workers.py`.

    Args:
        workers: those of a plan.
        slowed: how many times as long passes take beside an exchange, (n,).
        clips: whether a worker clips its gradient behind the backwards, but updates nothing.
    """
    clipping = workers.clipping / workers.passes if clips else 0.0
    return {
        "forward": slowed * workers.forward,
        "backward": slowed * workers.backward + clipping,
        "optimizer": workers.optimizer,
    }
