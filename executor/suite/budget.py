"""How many steps each case gets, so that the suite ends in the seconds it was given.

A case costs its setup (drawing first weights) and its steps. While all cases still to come fit with
the steps wanted, each has them. Else each has a share of the seconds left, in proportion to its
cost, and takes as many steps as fit; a case that has no time for `LEAST_STEPS` is left out. What
earlier cases took over their estimate (`pace`) corrects the estimates of the later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

WARMUP = 3
LEAST_STEPS = 5
EXTRA = 7
"""Steps after those that are timed: three pairs to record one, and one to count memory."""

LAUNCH = 6.0
"""Seconds until a process has imported torch and found its device."""

DRAWING = 10e-9
"""Seconds a parameter: first weights are drawn by one thread of the host."""

PATIENCE = 60.0
"""Seconds that a case may hang at most, beyond four times its estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Estimated seconds of a case: once, and for each step."""

    setup: float
    step: float

    @classmethod
    def of(cls, parameters: float, step: float) -> Cost:
        """From the number of parameters and the predicted seconds of a step."""
        return cls(setup=LAUNCH + DRAWING * parameters, step=step)

    def seconds(self, steps: int, warmup: int = WARMUP) -> float:
        """Estimated seconds with so many timed steps."""
        return self.setup + (warmup + steps + EXTRA) * self.step


@dataclass(slots=True, kw_only=True)
class Budget:
    """The seconds of one suite; `kept` of them are for the report."""

    total: float
    kept: float = 0.0
    warmup: int = WARMUP
    clock: Callable[[], float] = time.monotonic
    began: float = field(default=-1.0)
    ratios: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.clock() if self.began < 0.0 else self.began

    @property
    def left(self) -> float:
        """Seconds for cases that are left."""
        return self.total - self.kept - (self.clock() - self.began)

    @property
    def pace(self) -> float:
        """What the cases so far took over their estimates."""
        return max(0.2, median(self.ratios)) if self.ratios else 1.0

    def took(self, seconds: float, cost: Cost, steps: int) -> None:
        """Note a finished case."""
        self.ratios.append(seconds / cost.seconds(steps, self.warmup))

    def steps(self, cost: Cost, later: Sequence[Cost], wanted: int) -> int:
        """Timed steps for the next case, from `wanted` down to `LEAST_STEPS`; 0 leaves it out."""
        least = min(wanted, LEAST_STEPS)
        all_of_it = sum(self._needed(case_cost, wanted) for case_cost in (cost, *later))
        share = self.left * min(1.0, self._needed(cost, wanted) / all_of_it)
        if all_of_it <= self.left:
            return wanted
        fitting = (n for n in range(wanted, least, -1) if self._needed(cost, n) <= share)
        return next(fitting, least if self._needed(cost, least) <= self.left else 0)

    def limit(self, cost: Cost, steps: int) -> float:
        """Seconds after which a case is taken to hang: far more than it should take."""
        return max(1.0, min(self.left, PATIENCE + 4.0 * self._needed(cost, steps)))

    def why_not(self, cost: Cost, wanted: int) -> str:
        """The reason for a case that is left out."""
        least = min(wanted, LEAST_STEPS)
        return (
            f"no time: about {self._needed(cost, least):.0f} s for {least} steps, "
            f"{max(0.0, self.left):.0f} s of {self.total:.0f} s are left; use --seconds"
        )

    def _needed(self, cost: Cost, steps: int) -> float:
        return self.pace * cost.seconds(steps, self.warmup)
