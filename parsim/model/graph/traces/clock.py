"""Seconds of calls in a trace: of their kernels where the trace has any, else their own.

A kernel bears the correlation of its launch, and the launch stands within the operator that made
it. Collectives are left out, since a plan decides about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from parsim.model.graph.traces.events import LAUNCHES, ON_DEVICE, Call, Event

SECOND = 1e6
"""Microseconds."""

_COLLECTIVE = re.compile("nccl|rccl", re.IGNORECASE)


class Clock:
    """Tells the seconds of calls; `on_device` where it reads kernels, `collectives` left out."""

    def __init__(self, events: Iterable[Event]) -> None:
        """Add up the kernels of each launch."""
        kernels = [event for event in events if event.category in ON_DEVICE]
        self.on_device = bool(kernels)
        self.collectives = 0.0
        self._of_launch: dict[int, float] = {}
        for kernel in kernels:
            correlation = kernel.number("correlation")
            if _COLLECTIVE.search(kernel.name):
                self.collectives += kernel.duration / SECOND
            elif correlation is not None:
                before = self._of_launch.get(correlation, 0.0)
                self._of_launch[correlation] = before + kernel.duration

    def seconds(self, calls: Iterable[Call]) -> float:
        """Seconds of some calls together."""
        return sum(map(self._microseconds, calls)) / SECOND

    def _microseconds(self, call: Call) -> float:
        if not self.on_device:
            return call.top.duration
        launches = [event for event in call.events if event.category in LAUNCHES]
        numbers = [event.number("correlation") for event in launches]
        return sum(self._of_launch.get(number, 0.0) for number in numbers if number is not None)
