"""How far a predicted memory peak is from the measured one: the spread of log errors by evidence.

    evidence   who                                                            sd
    measured   the stack's own peaks are measured in this recompute mode      0.015 to 0.03
    known      the stack is described, its peaks are not measured             0.03, selective 0.08
    unknown    a stack that nobody described: generic assumptions             0.04, selective 0.35

Source: residuals of published peaks (15 distinct of Megatron-Core on B200 without recomputation:
rms 0.2 %; 10 of torchtitan on H100: selective 0.8 %, full 3.1 %; parsim's own runs on CPU ranks:
3.0 % at most), and of the same runs predicted under other stacks' assumptions, which is what not
knowing a stack means: 1.6 to 2.5 % without recomputation, 4 to 50 % where the operators that one
stack recomputes are taken for another's. The same rows made and test it, and other models may
show more than they do, so 1.5 % is the least. Full recomputation under assumed stacks is a guess.
Leaves out: sizes far from those runs (4 to 84 GiB of activations and logits), mixture of experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from parsim.cost.software import GENERIC, Software
from parsim.plan import Recompute

Evidence = Literal["measured", "known", "unknown"]

Z80 = 1.2816
"""Standard normal quantile of an interval that holds 80 %."""

MEASURED = {
    ("megatron-te-2025", Recompute.NONE): 0.015,
    ("torchtitan", Recompute.SELECTIVE): 0.015,
    ("torchtitan", Recompute.FULL): 0.03,
    ("executor-cpu", Recompute.NONE): 0.03,
}
"""Standard deviation of log(predicted / measured) of measured (stack, recompute mode)."""

ASSUMED: dict[Evidence, dict[Recompute, float]] = {
    "known": {Recompute.NONE: 0.03, Recompute.SELECTIVE: 0.08, Recompute.FULL: 0.05},
    "unknown": {Recompute.NONE: 0.04, Recompute.SELECTIVE: 0.35, Recompute.FULL: 0.10},
}
"""The same where the stack's peaks are not measured in this mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpread:
    """Evidence for a predicted peak, and the standard deviation of its log error."""

    evidence: Evidence
    sd: float

    def interval(self, peak: float) -> tuple[float, float]:
        """Bytes between which the measured peak lies in 80 % of cases."""
        factor = math.exp(Z80 * self.sd)
        return peak / factor, peak * factor


def memory_spread(software: Software, recompute: Recompute) -> MemorySpread:
    """Spread of a predicted peak of a plan with this recompute mode under this software."""
    if (software.id, recompute) in MEASURED:
        return MemorySpread(evidence="measured", sd=MEASURED[software.id, recompute])
    evidence: Evidence = "unknown" if software.id == GENERIC else "known"
    return MemorySpread(evidence=evidence, sd=ASSUMED[evidence][recompute])
