"""How long this thread was ready to run and had no core: what other processes took from it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

SCHEDULER = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds on a core, nanoseconds ready and waiting for one, time slices."""
BUSY = 0.05
"""Share of the time in the queue from which on a machine is busy with something else."""
PROBE = 0.03
"""Seconds that a thread computes to see whether it has a core."""


class Queue:
    """Counts from its making: `share` of the time that this thread waited for a core."""

    def __init__(self) -> None:
        self._began, self._waited = time.perf_counter(), waited()

    @property
    def share(self) -> float:
        """From 0 to 1; 0 where the system does not tell."""
        lasted = time.perf_counter() - self._began
        return min(max((waited() - self._waited) / lasted, 0.0), 1.0) if lasted > 0.0 else 0.0


def probed() -> float:
    """Share of a moment for which this thread waits for a core while it does nothing but compute.

    Ranks that exchange something wait for the threads of their own messages too: what others take
    from them is seen while they do not.
    """
    queue, end = Queue(), time.perf_counter() + PROBE
    while time.perf_counter() < end:
        pass
    return queue.share


def waited() -> float:
    """Seconds that this thread has been ready without a core; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(SCHEDULER.read_text(encoding="utf-8").split()[1]) * 1e-9
    return 0.0
