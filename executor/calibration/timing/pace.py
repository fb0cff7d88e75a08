"""How much slower a core is than at its quickest: what neighbours take that no counter tells.

A small product tells (`executor/measure/core_product.py`). Timed beside each round of a pass, it
says what that round would have taken at the quickest pace seen. Messages of this machine's own
ranks slow it too, so that it is not timed among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import median

import torch

from executor.measure.core_product import CoreProduct

SLOWED = 1.15
"""Pace from which on it is a slow core: on a quiet machine it is 1.02 to 1.08."""
DOUBT = 0.5
"""Share of the correction (ln) that stays in doubt: a pass is no product, and moves more bytes."""


class Pace:
    """The product of one rank on its `device`, and its quickest time so far."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._product = CoreProduct() if device.type == "cpu" else None
        self._quickest = float("inf")

    @property
    def quickest(self) -> float | None:
        """Seconds of the product at its quickest; None where there is none."""
        return self._quickest if self._quickest < float("inf") else None

    def now(self) -> float:
        """Times that the core is slower now than at its quickest, at least 1; of GPUs always 1."""
        if self._product is None:
            return 1.0
        seconds = self._product.seconds()
        self._quickest = min(self._quickest, seconds)
        return seconds / self._quickest


def at_pace(
    rounds: Sequence[tuple[float, float]], paces: Sequence[float]
) -> list[tuple[float, float]]:
    """What rounds would have taken on a core that is not slow."""
    return [
        (ahead / pace, back / pace) if pace > SLOWED else (ahead, back)
        for (ahead, back), pace in zip(rounds, paces, strict=True)
    ]


def lost(paces: Sequence[float]) -> float:
    """Share of a core's speed that was taken from it in the middle round; 0 if it is not slow."""
    middle = median(paces)
    return 1.0 - 1.0 / middle if middle > SLOWED else 0.0


def doubt(paces: Sequence[float]) -> float:
    """Standard deviation (ln) of what `at_pace` makes of rounds."""
    return -DOUBT * log(1.0 - lost(paces))
