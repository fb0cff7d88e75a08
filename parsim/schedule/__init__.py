"""Pipeline schedules as data: a name and sizes, or a user's CSV, come in; a `Schedule` leaves.

It says who computes what in which order, without seconds. `families` has one file a family;
`build_schedule` picks one by name, `parse_user_schedule` reads a user's own.
`lowering` adds communication, `check` proves a schedule complete, ordered and free of deadlock,
`inflight` counts activations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parsim.errors import ScheduleError, alternatives, shown
from parsim.schedule.actions import Action, Kind
from parsim.schedule.check import parse_user_schedule, schedule_of_shape
from parsim.schedule.families.bpipe import bpipe
from parsim.schedule.families.chimera import chimera
from parsim.schedule.families.dual_pipe import dualpipe, dualpipe_v
from parsim.schedule.families.eager_1f1b import eager_1f1b
from parsim.schedule.families.gpipe import gpipe
from parsim.schedule.families.hanayo import hanayo
from parsim.schedule.families.interleaved import interleaved_1f1b
from parsim.schedule.families.looped_bfs import looped_bfs
from parsim.schedule.families.naive import naive
from parsim.schedule.families.one_f_one_b import one_f_one_b
from parsim.schedule.families.v_shape import v_half, v_min, zb_v
from parsim.schedule.families.zb_auto import zb_1p, zb_2p, zb_auto
from parsim.schedule.families.zero_bubble import zb_h1, zb_h2
from parsim.schedule.orders.weight_fill import EQUAL, ActionTimes
from parsim.schedule.schedule import Schedule

if TYPE_CHECKING:
    from parsim.plan import Plan

Times = tuple[float, float, float, float, float]
"""F, I, W, a message, and the share of activations that W needs: `ActionTimes` as a plan has it."""

__all__ = [
    "CHUNKED",
    "SCHEDULES",
    "TIMED",
    "TWO_WAY",
    "V_SHAPED",
    "Action",
    "ActionTimes",
    "Kind",
    "Schedule",
    "Times",
    "build_schedule",
    "parse_user_schedule",
    "schedule_of",
]

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager_1f1b": eager_1f1b,
    "bpipe": bpipe,
    "interleaved_1f1b": interleaved_1f1b,
    "looped_bfs": looped_bfs,
    "hanayo": hanayo,
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zb_1p": zb_1p,
    "zb_2p": zb_2p,
    "zb_auto": zb_auto,
    "zb_v": zb_v,
    "v_half": v_half,
    "v_min": v_min,
    "dualpipe_v": dualpipe_v,
    "chimera": chimera,
    "dualpipe": dualpipe,
}
"""Name to builder; a builder takes pp, num_microbatches and, if it is in `CHUNKED`, v; if it is in
`TIMED`, the times to search for."""

CHUNKED = frozenset({"interleaved_1f1b", "looped_bfs", "hanayo"})
"""The schedules that give a rank any number of chunks above one (hanayo: an even one)."""

V_SHAPED = frozenset({"zb_v", "v_half", "v_min", "dualpipe_v"})
"""The schedules that give a rank two chunks."""

TWO_WAY = frozenset({"chimera", "dualpipe"})
"""The schedules with two copies of the model in opposite directions."""

TIMED = frozenset({"zb_1p", "zb_2p", "zb_auto", "zb_v", "hanayo", "chimera"})
"""The schedules whose order depends on how long actions take."""


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
        return build_schedule(
            plan.schedule, pp=pp, num_microbatches=m, v=v, times=plan.action_times
        )
    return schedule_of_shape(plan.schedule, plan.actions, pp=pp, num_microbatches=m, v=v)


def build_schedule(
    name: str,
    *,
    pp: int,
    num_microbatches: int,
    v: int = 1,
    actions: str | None = None,
    times: Times | None = None,
) -> Schedule:
    """Build the named schedule for pp ranks with v chunks each: compute actions only.

    With `actions`, the CSV of a user's own schedule, it is that one and the name is only a name.
    `times` are a plan's `action_times`; without them F, I and W count as equally long.

    Raises:
        ScheduleError: the name is unknown, a size is not allowed, v > 1 with a schedule that has
            no chunks, or a schedule of the user's own is wrong or of other sizes.
    """
    if actions is not None:
        sizes = {"pp": pp, "num_microbatches": num_microbatches, "v": v}
        return schedule_of_shape(name, actions, **sizes).compute_only()
    if name not in SCHEDULES:
        raise ScheduleError(f"unknown schedule '{shown(name)}'{alternatives(name, SCHEDULES)}")
    if name in V_SHAPED and v != 2:
        raise ScheduleError(f"schedule {name} has two chunks per rank, but v={v}; use v=2")
    if v != 1 and name not in V_SHAPED | CHUNKED:
        raise ScheduleError(
            f"schedule {name} has one chunk per rank, but v={v}; "
            f"use {', '.join(sorted(CHUNKED))} or v=1"
        )
    chunks = (v,) if name in CHUNKED else ()
    searched = (EQUAL if times is None else ActionTimes(*times),) if name in TIMED else ()
    return SCHEDULES[name](pp, num_microbatches, *chunks, *searched)
