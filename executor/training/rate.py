"""The learning rate of each step: it rises in a line, then stays or falls along a cosine.

    i < warmup    rate = peak (i + 1) / warmup
    behind it     rate = low + (peak - low) (1 + cos(pi x)) / 2,  low = peak / 10,
                  x from 0 at step `warmup` to 1 at the last one

Source: SGDR (Loshchilov and Hutter 2017), as GPT-3 was trained (Brown et al. 2020, appendix B):
linear warm-up, cosine decay to a tenth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LOWEST = 0.1
"""Where the cosine ends, as a share of the peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A schedule over `steps` steps, of which the first `warmup` rise; "constant" or "cosine"."""

    peak: float = 6e-4
    warmup: int = 0
    decay: str = "constant"
    steps: int = 0

    def at(self, step: int) -> float:
        """The rate of a step, counted from 0; behind the last one that of the last."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.decay == "constant":
            return self.peak
        length = max(self.steps - 1 - self.warmup, 1)
        share = min((step - self.warmup) / length, 1.0)
        return self.peak * (LOWEST + (1.0 - LOWEST) * (1.0 + math.cos(math.pi * share)) / 2.0)
