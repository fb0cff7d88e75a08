"""Which pipeline rank holds each stage of a plan."""

from __future__ import annotations

from parsim.plan import Plan
from parsim.plan.names import FOLDED
from parsim.schedule import build_schedule


def stage_ranks(plan: Plan) -> list[int]:
    """The pipeline rank of each stage of a plan, copy by copy of the model.

    Raises:
        ScheduleError: the actions of the user's own schedule are wrong, or of other sizes.
    """
    if plan.actions is not None:
        schedule = build_schedule(
            plan.schedule,
            pp=plan.pp,
            num_microbatches=plan.num_microbatches,
            v=plan.v,
            actions=plan.actions,
        )
        return list(schedule.stage_rank)
    down = list(range(plan.pp))
    if plan.copies > 1:
        return [*down, *down[::-1]]
    if plan.schedule in FOLDED:
        return [*down, *down[::-1]] * (plan.v // 2)
    return down * plan.v
