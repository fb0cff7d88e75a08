"""Pipeline schedules as data: who computes what in which order, without seconds.

One file per schedule family; `build_schedule` picks one by name, or reads a user's `own`.
`lowering` adds communication, `check` proves a schedule complete, ordered and free of deadlock,
`inflight` counts activations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parsim.errors import ScheduleError, did_you_mean
from parsim.schedule.actions import Action, Kind, Schedule
from parsim.schedule.gpipe import gpipe
from parsim.schedule.interleaved import interleaved_1f1b
from parsim.schedule.naive import naive
from parsim.schedule.one_f_one_b import one_f_one_b
from parsim.schedule.own import check_shape, own_schedule

if TYPE_CHECKING:
    from parsim.plan import Plan

__all__ = [
    "CHUNKED",
    "SCHEDULES",
    "Action",
    "Kind",
    "Schedule",
    "build_schedule",
    "own_schedule",
    "schedule_of",
]

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved_1f1b": interleaved_1f1b,
}
"""Name to builder; a builder takes pp, num_microbatches and, if it is in `CHUNKED`, v."""

CHUNKED = frozenset({"interleaved_1f1b"})
"""The schedules that give a rank more than one chunk."""


def schedule_of(plan: Plan) -> Schedule:
    """The schedule that a plan is run by; a user's own with its communication, if it has any.

    Without a pipeline every schedule is the same loop over micro-batches, and 1F1B stands for it.

    Raises:
        ScheduleError: see `build_schedule`.
    """
    pp, m, v = plan.pp, plan.num_microbatches, plan.v
    if pp == 1:
        return build_schedule("1f1b", pp=1, num_microbatches=m)
    if plan.actions is None:
        return build_schedule(plan.schedule, pp=pp, num_microbatches=m, v=v)
    own = own_schedule(plan.schedule, plan.actions)
    check_shape(own, pp=pp, num_microbatches=m, v=v)
    return own


def build_schedule(
    name: str, *, pp: int, num_microbatches: int, v: int = 1, actions: str | None = None
) -> Schedule:
    """Build the named schedule for pp ranks with v chunks each: compute actions only.

    With `actions`, the CSV of a user's own schedule, it is that one and the name is only a name.

    Raises:
        ScheduleError: the name is unknown, a size is not allowed, v > 1 with a schedule that has
            no chunks, or a schedule of the user's own is wrong or of other sizes.
    """
    if actions is not None:
        own = own_schedule(name, actions)
        check_shape(own, pp=pp, num_microbatches=num_microbatches, v=v)
        return own.compute_only()
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
