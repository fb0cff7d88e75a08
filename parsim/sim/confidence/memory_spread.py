"""How far a predicted memory peak is from the measured one: the spread of log errors by evidence.

    evidence   what is known                                                  sd
    measured   the stack's own peaks are measured in this recompute mode      their quantile / 1.28
    known      the stack is described, its peaks are not measured             0.03, selective 0.08
    unknown    a stack that nobody described: generic assumptions             0.04, selective 0.35

and for sizes outside of the measured runs' `memory_reach` for each factor e more. Quantiles are
corrected for few runs as those of steps are and lean on the other stacks' (`interval.json`).

Source: residuals of published peaks (Megatron-Core on B200 without recomputation, torchtitan on
H100 with it; parsim's own runs on CPU ranks: 3.0 % at most), and of the same runs predicted under
other stacks' assumptions, which is what not knowing a stack means: 1.6 to 2.5 % without
recomputation, 4 to 50 % where the operators that one stack recomputes are taken for another's. Full
recomputation under assumed stacks is a guess.
Leaves out: mixture of experts, of which no peak is measured; that it is tested on the rows
that it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from parsim.cost.software import GENERIC, Software
from parsim.plan import Recompute
from parsim.sim.confidence.known_errors import (
    Errors,
    MemoryGroup,
    Sizes,
    distance,
    outside,
    shipped_errors,
)

Evidence = Literal["measured", "known", "unknown"]

Z80 = 1.2816
"""Standard normal quantile of an interval that holds 80 %."""

PARSIM_RUNS = {("executor-cpu", Recompute.NONE): 0.03}
"""Standard deviation of log(predicted / measured) of parsim's own runs."""

ASSUMED: dict[Evidence, dict[Recompute, float]] = {
    "known": {Recompute.NONE: 0.03, Recompute.SELECTIVE: 0.08, Recompute.FULL: 0.05},
    "unknown": {Recompute.NONE: 0.04, Recompute.SELECTIVE: 0.35, Recompute.FULL: 0.10},
}
"""Standard deviations where the stack's peaks are not measured in this mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpread:
    """Evidence for a predicted peak, the standard deviation of its log error, and why in words."""

    evidence: Evidence
    sd: float
    basis: str

    @property
    def margin(self) -> float:
        """Share of a device's memory that must be free for the interval's upper end to fit."""
        return 1.0 - math.exp(-Z80 * self.sd)

    def interval(self, peak: float) -> tuple[float, float]:
        """Bytes between which the measured peak lies in 80 % of cases."""
        factor = math.exp(Z80 * self.sd)
        return peak / factor, peak * factor


def memory_spread(
    software: Software, recompute: Recompute, sizes: Sizes, errors: Errors | None = None
) -> MemorySpread:
    """Spread of a predicted peak of a plan of some sizes with this recompute mode."""
    errors = errors or shipped_errors()
    group = errors.memory.get((software.id, recompute.name.lower()))
    if group is not None:
        sd, basis = _measured(group, sizes, errors), "; ".join(_basis(group, sizes))
        return MemorySpread(evidence="measured", sd=sd, basis=basis)
    if (software.id, recompute) in PARSIM_RUNS:
        sd = PARSIM_RUNS[software.id, recompute]
        return MemorySpread(evidence="measured", sd=sd, basis="parsim's own runs")
    evidence: Evidence = "unknown" if software.id == GENERIC else "known"
    mode = recompute.name.lower()
    same_mode = (group for (_, its_mode), group in errors.memory.items() if its_mode == mode)
    least = (_measured(group, sizes, errors) for group in same_mode)
    sd = max(ASSUMED[evidence][recompute], *least, 0.0)  # no surer than what was measured
    basis = f"no measured peak of {software.id}, recompute {mode}"
    return MemorySpread(evidence=evidence, sd=sd, basis=basis)


def _measured(group: MemoryGroup, sizes: Sizes, errors: Errors) -> float:
    """Standard deviation by a group's own peaks and the distance from them."""
    outside_ranges = errors.memory_reach * distance(sizes, group.ranges)
    return math.hypot(group.half, outside_ranges) / Z80


def _basis(group: MemoryGroup, sizes: Sizes) -> Iterator[str]:
    """What a spread by measured peaks rests on, in words."""
    yield f"{group.n} measured peaks of {group.software}, recompute {group.recompute}"
    for name, factor in outside(sizes, group.ranges).items():
        yield f"{name} a factor {factor:.1f} outside of theirs"
