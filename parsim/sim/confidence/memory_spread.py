"""How far a predicted memory peak is from the measured one: the spread of log errors by evidence.

    evidence   what is known                                                  sd
    measured   the stack's own peaks are measured in this recompute mode      their quantile / 1.28
    kin        peaks of a stack of its memory family are measured             0.03, selective 0.08
    known      the stack is described from its code, and no more              0.19
    unknown    a stack that nobody described: generic assumptions             0.19, repeated 0.35

and for sizes outside of the measured runs' `memory_reach` for each factor e more; an unknown stack
may also differ in what is assumed of it (`unstated`). Quantiles are
corrected for few runs as those of steps are and lean on the other stacks' (`interval.json`).

Source: residuals of published peaks (Megatron-Core on B200 without recomputation, torchtitan on
H100 with it; parsim's own runs on CPU ranks: 3.0 % at most), and of the same runs predicted under
other stacks' assumptions: 4 to 50 % where the operators that one stack recomputes are taken for
another's. Stacks known from their code alone: DeepSpeed, nanotron, PaddleNLP and LitGPT, when they
were first described, have 80 % of their peaks within 19, 22, 26 and 31 % (ln), of which the middle
is 24 %, 1.28 times 0.19; their tables judge no bar of a peak since. Under `generic` 0.35 where
layers are repeated and what `unstated` adds hold 84 % of the peaks of nine tables (their mean).
Leaves out: that it is tested on the rows that it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from parsim.cost.job import Job
from parsim.cost.software import GENERIC, Software, software_catalog
from parsim.plan import Plan, Recompute
from parsim.sim.confidence.known_errors import (
    Errors,
    MemoryGroup,
    Sizes,
    distance,
    errors_of,
    told_outside,
)
from parsim.units import counted

Evidence = Literal["measured", "kin", "known", "unknown"]

Z80 = 1.2816
"""Standard normal quantile of an interval that holds 80 %."""

PARSIM_RUNS = {("executor-cpu", Recompute.NONE): 0.03}
"""Standard deviation of log(predicted / measured) of parsim's own runs."""

ASSUMED: dict[Evidence, dict[Recompute, float]] = {
    "kin": {Recompute.NONE: 0.03, Recompute.SELECTIVE: 0.08, Recompute.FULL: 0.05},
    "known": dict.fromkeys(Recompute, 0.19),
    "unknown": {Recompute.NONE: 0.19, Recompute.SELECTIVE: 0.35, Recompute.FULL: 0.35},
}
"""Standard deviations where the stack's peaks are not measured in this mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpread:
    """Evidence for a predicted peak, the standard deviation of its log error, and why in words.

    `less` and `more` are bytes that the peak may lack or have beside, independent of that error.
    """

    evidence: Evidence
    sd: float
    basis: str
    less: float = 0.0
    more: float = 0.0

    @property
    def margin(self) -> float:
        """Share of a device's memory that must be free for the interval's upper end to fit."""
        return 1.0 - math.exp(-Z80 * self.sd)

    def interval(self, peak: float) -> tuple[float, float]:
        """Bytes between which the measured peak lies in 80 % of cases."""
        factor = math.exp(Z80 * self.sd)
        below, above = peak - peak / factor, peak * factor - peak
        return peak - math.hypot(below, self.less), peak + math.hypot(above, self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstatedBytes:
    """Bytes of a peak that rest on what is assumed of the stack, and a gradient's width in it.

    `eager` are those that it has beside where no kernel of its layers is fused, `gathered` where
    ranks keep whole between micro-batches what the plan shards; `ranks` may each have all logits.
    """

    gradients: float
    logits: float
    width: float
    eager: float = 0.0
    gathered: float = 0.0
    ranks: int = 1


GRADIENT_WIDTHS = (2.0, 4.0)
"""Bytes of a gradient: 16 bit in performance recipes of NeMo and Megatron-Bridge, else 32."""
LOGIT_BYTES = (2.0, 14.0)
"""Bytes a logit at the peak: Transformer Engine's fused loss, and an unfused one in fp32."""
WORKSPACES = (0.03e9, 0.4e9)
"""Bytes of workspaces: 8 runs on B200, and what is assumed of stacks that nobody measured."""


def unstated(spread: MemorySpread, software: Software, assumed: UnstatedBytes) -> MemorySpread:
    """The spread of a stack that nobody described, with what other stacks do otherwise.

    Gradients in 2 or 4 bytes, 2 to 14 bytes a logit, of all words or a tensor rank's, 0.03 to
    0.4 GB of workspace, layers whose kernels are fused or not, what ZeRO-2 and 3 shard whole
    between micro-batches or not, each beside what is assumed, independent of each other. Optimizer
    states are taken as the plan shards them.

    Source: the range over the stacks in `software.yaml`, whose reasons stand there.
    Leaves out: buffers of pipelines' messages, fragments, other optimizers than Adam.
    """
    if spread.evidence != "unknown":
        return spread
    less, more = (_otherwise(side, software, assumed) for side in (0, 1))
    basis = f"{spread.basis}; {_assumed_words(software, assumed)}"
    return replace(spread, less=less, more=more, basis=basis)


def _otherwise(side: int, software: Software, assumed: UnstatedBytes) -> float:
    """Bytes less (side 0) or more (side 1) than assumed, if everything is at that end."""
    most = (LOGIT_BYTES[0], LOGIT_BYTES[1] * assumed.ranks)
    return math.hypot(
        assumed.gradients * (GRADIENT_WIDTHS[side] / assumed.width - 1.0),
        assumed.logits * (most[side] / software.loss_kept - 1.0),
        WORKSPACES[side] - software.workspace,
        assumed.eager * side,
        assumed.gathered * side,
    )


def _assumed_words(software: Software, assumed: UnstatedBytes) -> str:
    """What is assumed of the stack, and in brackets what others do."""
    told = (
        f"assumed: {assumed.width:.0f} bytes a gradient ({_range(GRADIENT_WIDTHS)}), optimizer "
        f"states sharded as planned, {software.loss_kept:.0f} bytes a logit "
        f"({_range(LOGIT_BYTES)}), {software.workspace / 1e9:.1f} GB of workspace, fused kernels "
        f"(unfused {assumed.eager / 1e9:.1f} GB more)"
    )
    if assumed.gathered:
        told += f", sharded between micro-batches (whole {assumed.gathered / 1e9:.1f} GB more)"
    if assumed.ranks > 1:
        told += f", a rank's own logits (all words x {assumed.ranks})"
    return told


def _range(ends: tuple[float, float]) -> str:
    return f"elsewhere {ends[0]:.0f} to {ends[1]:.0f}"


def memory_spread(
    software: Software,
    recompute: Recompute,
    sizes: Sizes,
    errors: Errors | None = None,
    practice: str = "",
) -> MemorySpread:
    """Spread of a predicted peak of a plan of some sizes with this recompute mode.

    `practice` is the software with the kind of model (`Job.practice`): its own peaks come first.
    """
    errors = errors or errors_of(practice)
    mode = recompute.name.lower()
    group = errors.memory.get((practice, mode)) or errors.memory.get((software.id, mode))
    if group is not None:
        sd, basis = _measured(group, sizes, errors), "; ".join(_basis(group, sizes))
        return MemorySpread(evidence="measured", sd=sd, basis=basis)
    if (software.id, recompute) in PARSIM_RUNS:
        sd = PARSIM_RUNS[software.id, recompute]
        return MemorySpread(evidence="measured", sd=sd, basis="parsim's own runs")
    evidence = _evidence(software, errors)
    same_mode = (group for (_, its_mode), group in errors.memory.items() if its_mode == mode)
    least = (_measured(group, sizes, errors) for group in same_mode)
    sd = max(ASSUMED[evidence][recompute], *least, 0.0)  # no surer than what was measured
    basis = f"no measured peak of {software.id}, recompute {mode}"
    if evidence == "kin":
        basis += f", but some of {software.memory_family}'s stacks"
    return MemorySpread(evidence=evidence, sd=sd, basis=basis)


def _evidence(software: Software, errors: Errors) -> Evidence:
    """What is known of a stack whose peaks are not measured in a recompute mode."""
    if software.id == GENERIC:
        return "unknown"
    if not software.memory_family:
        return "known"
    measured = (group.software.partition(",")[0] for group in errors.memory.values())
    stacks = chain(measured, (stack for stack, _ in PARSIM_RUNS))
    alike = (software_catalog()[stack].memory_family == software.memory_family for stack in stacks)
    return "kin" if any(alike) else "known"


def plan_spread(job: Job, plan: Plan, sizes: Sizes) -> MemorySpread:
    """Spread of a predicted peak of a plan.

    Of one that recomputes a number of layers the wider of those of its two kinds of layers.
    """
    modes = [plan.recompute, *([Recompute.FULL] if plan.recompute_layers else [])]
    spreads = (memory_spread(job.software, mode, sizes, practice=job.practice) for mode in modes)
    return max(spreads, key=lambda spread: spread.margin)


def _measured(group: MemoryGroup, sizes: Sizes, errors: Errors) -> float:
    """Standard deviation by a group's own peaks and the distance from them."""
    outside_ranges = errors.memory_reach * distance(sizes, group.ranges)
    return math.hypot(group.half, outside_ranges) / Z80


def _basis(group: MemoryGroup, sizes: Sizes) -> Iterator[str]:
    """What a spread by measured peaks rests on, in words."""
    peaks = counted(group.n, "measured peak")
    yield f"{peaks} of {group.software}, recompute {group.recompute}"
    yield from told_outside(sizes, group.ranges, least=0.0)
