"""When a search ends before it is done, and what it still does then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

PATIENCE = 0.5
"""Seconds after its end that a search looks on for a first plan that fits, or describes plans."""

TIME_IS_UP = "stopped by time limit"


@dataclass(slots=True)
class Stop:
    """The end of a search: time is up, or Ctrl-C came; `reason` says which, empty before.

    `until` is what `time.perf_counter` says when time is up.
    """

    until: float = inf
    reason: str = ""

    @property
    def limited(self) -> bool:
        """Whether time may be short, so that work is done in small pieces."""
        return self.until < inf

    @property
    def due(self) -> bool:
        """Whether no more is to be begun."""
        if not self.reason and time.perf_counter() > self.until:
            self.reason = TIME_IS_UP
        return bool(self.reason)

    def of_first_step(self) -> Stop:
        """When a first step ends: three quarters of the time that is left are for what follows."""
        now = time.perf_counter()
        return Stop(now + (self.until - now) / 4.0)

    def interrupt(self) -> None:
        """Note that the user does not wait any longer."""
        self.reason = self.reason or "interrupted"
        self.until = min(self.until, time.perf_counter())
