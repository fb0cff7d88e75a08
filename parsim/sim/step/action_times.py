"""How long a plan's F, I and W take: what the searched zero-bubble schedules are built for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.cost.job import Job
from parsim.plan import Plan, PlanTable
from parsim.schedule import TIMED, Kind, Times
from parsim.sim.step.kept_bytes import splits_like_torch
from parsim.sim.step.priced_step import price_step
from parsim.sim.step.schedule_costs import action_seconds


def with_action_times(job: Job, plan: Plan) -> Plan:
    """The plan with its schedule searched for its own prices; one that is not searched as it is.

    As the papers' runtime does, which times some steps first and then searches.
    """
    if plan.pp == 1 or plan.schedule not in TIMED:
        return plan
    return replace(plan, action_times=action_times(job, replace(plan, action_times=None)))


def action_times(job: Job, plan: Plan) -> Times:
    """`stage_times` as shares of F, and what W keeps.

    Rounded to three digits, so that the last bits of a price do not change a schedule.
    """
    forward, inputs, weights, message = stage_times(job, plan)
    return (
        1.0,
        round(inputs / forward, 3),
        round(weights / forward, 3),
        round(message / forward, 3),
        kept_share(job, PlanTable.of([plan])),
    )


def stage_times(job: Job, plan: Plan) -> tuple[float, float, float, float]:
    """Seconds of F, I, W and a message: the median stage, as the papers' runtime takes it."""
    costs = price_step(job, plan).costs
    seconds = action_seconds(costs)
    forward, inputs, weights = (
        float(np.median(seconds[kind])) for kind in (Kind.F, Kind.I, Kind.W)
    )
    return forward, inputs, weights, float(costs.hop.max())


def kept_share(job: Job, table: PlanTable) -> float:
    """M_W / M_B = 32 h / (34 h + 5 a s), as the papers and their runtime count a limit.

    That is of layers whose attention keeps its scores: with fused attention, a schedule searched
    for this holds more than its limit says; what it holds then, `MemoryUse` tells. PyTorch's
    runtime frees nothing before W.

    Source: arXiv 2401.10241, table 1; sail-sg/zero-bubble-pipeline-parallelism 39f2c186,
    `f_mem_approx` and `w_mem_approx`.
    """
    attention, model = job.model.attention, job.model
    if splits_like_torch(job, table) or attention is None:
        return 1.0
    hidden = model.border // model.tokens
    return round(32 * hidden / (34 * hidden + 5 * attention.heads * attention.tokens), 3)
