"""What a rank's device tells of itself between steps: memory, clock and power."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

EVERY = 1.0
"""Seconds between two looks at clock and power: asking takes some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """Bytes, Hz and W of one rank; None for what the device, or the system, does not tell.

    The peaks are those since the look before. `resident` is the process's memory in RAM.
    """

    peak_allocated: float | None = None
    peak_reserved: float | None = None
    resident: float | None = None
    clock: float | None = None
    power: float | None = None


@dataclass(slots=True)
class DeviceMonitor:
    """Looks at one rank's device; on a CPU there is only the process's memory to see."""

    device: torch.device
    _looked: float = field(default=-1e9, init=False)
    _last: tuple[float | None, float | None] = field(default=(None, None), init=False)

    def look(self) -> DeviceState:
        """The state now; begins a new peak."""
        if self.device.type != "cuda":
            return DeviceState(resident=resident_bytes())
        state = DeviceState(
            peak_allocated=float(torch.cuda.max_memory_allocated(self.device)),
            peak_reserved=float(torch.cuda.max_memory_reserved(self.device)),
            resident=resident_bytes(),
            clock=self._slow()[0],
            power=self._slow()[1],
        )
        torch.cuda.reset_peak_memory_stats(self.device)
        return state

    def _slow(self) -> tuple[float | None, float | None]:
        """Clock and power, asked again when the last answer is old."""
        if time.monotonic() - self._looked > EVERY:
            self._looked = time.monotonic()
            megahertz = _told(lambda: torch.cuda.clock_rate(self.device))
            milliwatts = _told(lambda: torch.cuda.power_draw(self.device))
            self._last = (
                None if megahertz is None else 1e6 * megahertz,
                None if milliwatts is None else 1e-3 * milliwatts,
            )
        return self._last


def _told(ask: Callable[[], int]) -> float | None:
    """What the driver answers; None without its Python package, or where it refuses."""
    try:
        return float(ask())
    except Exception:  # the package raises errors of its own, and may be missing
        return None


def resident_bytes() -> float | None:
    """Memory of this process in RAM: now where the system tells, else the most there ever was."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most if sys.platform == "darwin" else 1024 * most)
