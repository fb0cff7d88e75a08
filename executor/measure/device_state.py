"""What a rank's device tells of itself between steps: memory, clock and power, a core's pace."""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from executor.devices.accelerator import Accelerator, accelerator
from executor.measure.core_product import CoreProduct

EVERY = 1.0
"""Seconds between two looks at clock, power and pace: asking takes some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """Bytes, Hz, W and seconds of one rank; None for what the device, or the system, does not tell.

    The peaks are those since the look before. `resident` is the process's memory in RAM, and
    `core_product` what a small product takes on a CPU's core now.
    """

    peak_allocated: float | None = None
    peak_reserved: float | None = None
    resident: float | None = None
    clock: float | None = None
    power: float | None = None
    core_product: float | None = None


@dataclass(slots=True)
class DeviceMonitor:
    """Looks at one rank's device; on a CPU there are the process's memory and its core to see."""

    device: torch.device
    _looked: float = field(default=-1e9, init=False)
    _last: tuple[float | None, ...] = field(default=(None, None, None), init=False)
    _product: CoreProduct = field(default_factory=CoreProduct, init=False)

    def look(self) -> DeviceState:
        """The state now; begins a new peak."""
        asked = accelerator(self.device)
        clock, power, product = self._slow(asked)
        state = DeviceState(
            peak_allocated=asked.peak_allocated(),
            peak_reserved=asked.peak_reserved(),
            resident=resident_bytes(),
            clock=clock,
            power=power,
            core_product=product,
        )
        asked.reset_peak()
        return state

    def _slow(self, asked: Accelerator) -> tuple[float | None, ...]:
        """Clock, power and a core's product, asked again when the last answer is old."""
        if time.monotonic() - self._looked > EVERY:
            self._looked = time.monotonic()
            product = self._product.seconds() if self.device.type == "cpu" else None
            self._last = (asked.clock(), asked.power(), product)
        return self._last


def resident_bytes() -> float | None:
    """Memory of this process in RAM: now where the system tells, else the most there ever was."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most if sys.platform == "darwin" else 1024 * most)
