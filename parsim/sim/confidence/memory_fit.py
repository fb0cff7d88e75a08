"""Whether a plan's memory fits its devices: one rule and three words for every command.

    usable = device's memory - context
    |-- allocated -----------------|-- reserve --|-- margin --|     fits
    |-- allocated --------------------------|-- reserve --|-- margin --|     tight
    |-- allocated ---------------------------------------------------|     does not fit
    0                                                          usable

A plan *fits* where its peak, with what the allocator reserves for it, leaves the margin free; it
is *tight* where the peak alone is within usable memory: it may run, may run out of memory, or be
slower, for the allocator then frees its cache and tries again. Else it *does not fit*. Copies that
an optimizer makes when all activations are gone do not count unless they are the peak: the cache
that they cannot use can be freed.

The margin is for the prediction's own error: the share of usable memory that the upper end of the
peak's 80 % interval takes, so that of ten plans that just fit nine should run; or what the user
states instead.

Source: `sim/memory/reserved.py` and `sim/confidence/memory_spread.py`; why these three:
reports/decisions/0017-fits.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.plan import Plan, PlanTable
from parsim.sim.confidence.interval import sizes_of
from parsim.sim.confidence.memory_spread import plan_spread
from parsim.sim.memory.reserved import SEGMENT, reserved_bytes

UPPER_END = "upper end of the peak's 80 % interval"
STATED = "stated as search.memory_margin"
RISK = "may run out of memory or be slower than predicted"
"""What a tight plan risks: its allocator frees its cache and tries again before it gives up."""


class Fit(StrEnum):
    """Whether a peak fits a device, in words."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_LARGE = "does not fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The share of usable memory that must stay free for a plan to fit, and what it rests on."""

    share: float
    basis: str

    def left(self, usable: float) -> float:
        """Bytes that the allocator may reserve of so many."""
        return usable * (1.0 - self.share)

    def to_json(self) -> dict[str, Any]:
        """The margin's two entries of a document."""
        return {"memory_margin": self.share, "memory_margin_basis": self.basis}


def margin_of(job: Job, plan: Plan, stated: float | None = None) -> Margin:
    """The margin of one plan: what is stated, else what the prediction may be wrong by."""
    if stated is not None:
        return Margin(share=stated, basis=STATED)
    spread = plan_spread(job, plan, sizes_of(job, plan))
    return Margin(share=spread.margin, basis=UPPER_END)


def margin_shares(job: Job, table: PlanTable, stated: float | None = None) -> Array:
    """The margin of each plan of a table, (B,): equal for plans that the interval cannot tell."""
    some = table.recompute_layers > 0
    told_apart = (table.recompute, some, table.microbatch_size, table.cp, table.world_size)
    rows = np.stack([np.asarray(column, dtype=np.int64) for column in told_apart], axis=1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    shares = [margin_of(job, table.plan(row), stated).share for row in first.tolist()]
    return np.asarray(np.array(shares)[which.ravel()])


def has_room(
    software: Software, peak: Array, usable: Array | float, margin: Array | float
) -> Flags:
    """Whether peaks of allocated memory fit, with the allocator's reserve and the margin."""
    return np.asarray(reserved_bytes(software, peak) <= usable * (1.0 - margin))


def highest_with_room(software: Software, usable: float, margin: Array) -> Array:
    """Allocated bytes above which no peak has room, (B,): `has_room` turned round.

    Never less than the highest peak that has, and by rounding alone more.
    """
    left = usable * (1.0 - margin)
    if software.reserved_share > 0.0:
        left = np.floor(left / SEGMENT + 1e-9) * SEGMENT
    return np.asarray(left / (1.0 + software.reserved_share) * (1.0 + 1e-12))


def fit_of(software: Software, peak: float, usable: float, margin: float) -> Fit:
    """The word for one peak of allocated memory."""
    if peak > usable:
        return Fit.TOO_LARGE
    return Fit.FITS if bool(has_room(software, np.array(peak), usable, margin)) else Fit.TIGHT


def worst(words: Iterable[Fit]) -> Fit:
    """The word for a plan, from those of its ranks."""
    return max(words, key=list(Fit).index)
