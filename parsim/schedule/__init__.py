"""Pipeline schedules as data: who computes what in which order, without seconds.

One file per schedule family; `build_schedule` picks one by name. `lowering` adds communication,
`check` proves a schedule complete, ordered and free of deadlock, `inflight` counts activations.
"""

from __future__ import annotations

from collections.abc import Callable

from parsim.errors import ScheduleError, did_you_mean
from parsim.schedule.actions import Action, Kind, Schedule
from parsim.schedule.gpipe import gpipe
from parsim.schedule.interleaved import interleaved_1f1b
from parsim.schedule.naive import naive
from parsim.schedule.one_f_one_b import one_f_one_b

__all__ = ["CHUNKED", "SCHEDULES", "Action", "Kind", "Schedule", "build_schedule"]

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved_1f1b": interleaved_1f1b,
}
"""Name to builder; a builder takes pp, num_microbatches and, if it is in `CHUNKED`, v."""

CHUNKED = frozenset({"interleaved_1f1b"})
"""The schedules that give a rank more than one chunk."""


def build_schedule(name: str, *, pp: int, num_microbatches: int, v: int = 1) -> Schedule:
    """Build the named schedule for pp ranks with v chunks each.

    Raises:
        ScheduleError: the name is unknown, a size is not allowed, or v > 1 with a schedule that
            has no chunks.
    """
    if name not in SCHEDULES:
        raise ScheduleError(
            f"unknown schedule {name!r}{did_you_mean(name, SCHEDULES)}; "
            f"allowed: {', '.join(SCHEDULES)}"
        )
    if name in CHUNKED:
        return SCHEDULES[name](pp, num_microbatches, v)
    if v != 1:
        raise ScheduleError(
            f"schedule {name} has one chunk per rank, but v={v}; "
            f"use {', '.join(sorted(CHUNKED))} or v=1"
        )
    return SCHEDULES[name](pp, num_microbatches)
