"""Plans with schedules of the user."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.schedule import Schedule
from parsim.sim.recurrence.evaluate import Evaluation, evaluate


def with_actions(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with a schedule as if read from a file."""
    return replace(
        plan,
        pp=schedule.pp,
        v=schedule.num_stages // schedule.pp,
        num_microbatches=schedule.num_microbatches,
        schedule="own.csv",
        actions=schedule.to_csv(),
    )


def evaluated(job: Job, plan: Plan) -> Evaluation:
    return evaluate(job, plan, keep=True)
