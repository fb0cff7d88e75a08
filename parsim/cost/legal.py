"""Which plans a job may have: the rules of all plans, its batch, and its software's own rules."""

from __future__ import annotations

from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.batch_rules import wrong_batch
from parsim.plan.executor_rules import unrunnable
from parsim.plan.rules import violation


def illegal(job: Job, plan: Plan) -> str | None:
    """The first broken rule's message, or None for a legal plan."""
    message = violation(plan, job.model, job.cluster)
    if message is None and job.global_batch_size is not None:
        message = wrong_batch(plan, job.global_batch_size)
    if message is None and job.software.executor:
        return unrunnable(plan, job.model)
    return message


def check_legal(job: Job, plan: Plan) -> None:
    """Raise PlanError unless the plan is legal for this job."""
    message = illegal(job, plan)
    if message is not None:
        raise PlanError(message)
