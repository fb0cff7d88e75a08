"""Errors of predicted memory peaks by software and recompute mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.fitting.intervals.groups import SHRINK, ranges_of
from parsim.fitting.intervals.reach import reach
from parsim.fitting.intervals.residuals import Residual, independent, quantile, weights
from parsim.sim.confidence.known_errors import MemoryGroup

LEAST_PEAK_HALF = 0.003
"""No half of an interval is narrower: a peak scatters by 0.2 % between ranks and repeats."""
LEAST_REACH = 0.01
"""Log error of a peak per factor e outside of the measured sizes, at least: runs that were measured
are too alike to say, and a factor of 50 away (e^4) a stack's peaks are taken to be as unsure as
those of a stack of which none was measured, 3 to 4 %."""


def memory_reach(runs: Sequence[Residual]) -> float:
    """Growth of errors with distance, by `reach`, and never less than LEAST_REACH."""
    return max(reach(runs), LEAST_REACH)


def memory_groups(runs: Sequence[Residual]) -> list[MemoryGroup]:
    """One for each software and recompute mode; few runs lean on the median of all."""
    modes: dict[tuple[str, str], list[Residual]] = {}
    for run in runs:
        modes.setdefault((run.software, run.case.plan.recompute.name.lower()), []).append(run)
    usual = float(np.median([_half(members) for members in modes.values()])) if modes else 0.0
    return [_group(key, members, usual) for key, members in sorted(modes.items())]


def _half(runs: Sequence[Residual]) -> float:
    return max(
        quantile(np.abs(np.array([run.error for run in runs])), weights(runs)), LEAST_PEAK_HALF
    )


def _group(key: tuple[str, str], runs: Sequence[Residual], usual: float) -> MemoryGroup:
    count, mine = independent(weights(runs)), _half(runs)
    return MemoryGroup(
        software=key[0],
        recompute=key[1],
        n=len(runs),
        half=max(mine, (count * mine + SHRINK * usual) / (count + SHRINK)),
        ranges=ranges_of(runs),
    )
