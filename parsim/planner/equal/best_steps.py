"""Steps of the best plans known so far, and what another must not exceed beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parsim.arrays import Array

SLOWEST = 2.0
"""Steps of the fastest plan that one of a front of step time and memory may take."""


@dataclass(slots=True)
class BestSteps:
    """Seconds of the fastest plans that fit, and of the fastest tight ones, ascending.

    At the most `top` of each are kept; None: all, for a front of step time and memory.
    """

    top: int | None
    fitting: Array = field(default_factory=lambda: np.zeros(0))
    tight: Array = field(default_factory=lambda: np.zeros(0))

    def add(self, fitting: Array, tight: Array) -> None:
        """Put more simulated steps of plans that fit, and of tight ones, among the best."""
        self.fitting = np.sort(np.append(self.fitting, fitting))[: self.top]
        self.tight = np.sort(np.append(self.tight, tight))[: self.top]

    @property
    def fastest(self) -> float:
        """Seconds of the fastest plan that fits; infinite where none is known to."""
        return float(self.fitting[0]) if len(self.fitting) else np.inf

    @property
    def worst(self) -> float:
        """Seconds that a plan must not exceed to be among the best that fit."""
        if self.top is None:
            return SLOWEST * self.fastest
        return float(self.fitting[-1]) if len(self.fitting) == self.top else np.inf

    @property
    def worst_tight(self) -> float:
        """Seconds that a plan must not exceed to be told where it is tight.

        Where plans fit, it is only if it is the fastest of all; else among the best.
        """
        if len(self.fitting):
            return float(min(self.fitting[0], self.tight.min(initial=np.inf)))
        return float(self.tight[-1]) if len(self.tight) == self.top else np.inf
