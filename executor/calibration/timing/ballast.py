"""Products that keep a device's queue busy while the host puts the kernels to be timed into it.

    host    | products | start | kernel | kernel | kernel | end |
    device      | product | product | product | kernel | kernel | kernel |

Without them a kernel shorter than its launch would be timed as long as that. They run in fp16,
which a GPU's matrix units are fast in whatever is calibrated: ten of edge 4,096 in fp32 take 20 ms
on an H100 and 70 on an A100 by their data sheets, before each of hundreds of timings. (Not run on
CUDA yet.)
"""

from __future__ import annotations

import math

import torch

from executor.calibration.choice.candidates import AHEAD
from executor.devices.accelerator import accelerator

EDGE = 4096
"""Rows and columns of a product."""

PROBE = 5
"""Products whose mean time says how many are needed."""

MOST_PRODUCTS = 100
"""More products take the host longer than they give it."""


class Ballast:
    """Products that last for the seconds that a calibration plans, `count` of them."""

    def __init__(self, device: torch.device) -> None:
        self._asked = accelerator(device)
        self._square = torch.randn(EDGE, EDGE, device=device).to(torch.float16)
        self._put_in(1)  # the first one chooses a kernel
        start = self._asked.mark()
        self._put_in(PROBE)
        end = self._asked.mark()
        self._asked.synchronize()
        each = max(self._asked.seconds(start, end) / PROBE, 1e-9)
        self.count = min(max(math.ceil(AHEAD["cuda"] / each), 1), MOST_PRODUCTS)

    def __call__(self) -> None:
        """Put the products into an empty queue."""
        self._asked.synchronize()
        self._put_in(self.count)

    def _put_in(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self._square, self._square)
