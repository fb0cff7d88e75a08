"""A schedule of the user's own, in PyTorch's CSV: read, proven, and held against its plan.

A plan carries the text (`Plan.actions`), and everything that needs the schedule asks here, or
`build_schedule`, which asks here: the reader of scenarios, the simulators and the executor see
one object.
"""

from __future__ import annotations

from functools import lru_cache

from parsim.errors import ScheduleError
from parsim.schedule.check import check_schedule
from parsim.schedule.schedule import Schedule


@lru_cache(maxsize=16)
def parse_user_schedule(name: str, text: str) -> Schedule:
    """Read a schedule and prove that it is complete, in order and free of deadlock.

    The placement and the number of micro-batches are those of the actions. SEND, RECV, UNSHARD,
    RESHARD and REDUCE_GRAD stay where they are written.

    Raises:
        ScheduleError: something cannot be read, is missing, double, misplaced or out of order;
            the message starts with `name:line, cell`, where line r + 1 is that of rank r.
        DeadlockError: some ranks wait for each other forever; `cycle` names them.
    """
    schedule = Schedule.from_csv(text, name=name)
    check_schedule(schedule)
    return schedule


def schedule_of_shape(name: str, text: str, *, pp: int, num_microbatches: int, v: int) -> Schedule:
    """Read a schedule, and refuse one that is for other sizes than the plan's.

    Stages may be on any rank, also more of them on one rank than on another; but a plan cuts the
    model into pp x v stages, so their number must be that.

    Raises:
        ScheduleError: naming both numbers, or as `parse_user_schedule`.
    """
    schedule = parse_user_schedule(name, text)
    if schedule.pp != pp:
        raise ScheduleError(f"{name}: has {schedule.pp} rows, one for each rank, but pp={pp}")
    if schedule.num_stages != pp * v:
        raise ScheduleError(
            f"{name}: has {schedule.num_stages} stages, but pp={pp} x v={v} = {pp * v}"
        )
    if schedule.num_microbatches != num_microbatches:
        raise ScheduleError(
            f"{name}: has {schedule.num_microbatches} microbatches, but "
            f"num_microbatches={num_microbatches}"
        )
    return schedule
