"""How long a plan's F, I and W take: what the searched zero-bubble schedules are built for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.schedule import TIMED, Times
from parsim.sim.evaluate import evaluate
from parsim.sim.own_costs import weight_times
from parsim.sim.simulate import plan_shape
from parsim.sim.weight_memory import splits_like_torch


def with_action_times(job: Job, plan: Plan) -> Plan:
    """The plan with its schedule searched for its own prices; one that is not searched as it is.

    As the papers' runtime does, which times some steps first and then searches.
    """
    if plan.pp == 1 or plan.schedule not in TIMED:
        return plan
    return replace(plan, action_times=action_times(job, replace(plan, action_times=None)))


def action_times(job: Job, plan: Plan) -> Times:
    """F, I, W and a message of a stage, the median over stages, as shares of F; and what W keeps.

    Rounded to three digits, so that the last bits of a price do not change a schedule.
    """
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    costs = evaluate(job, table, plan_shape(plan), layers).costs
    weight = weight_times(costs)
    forward, inputs = _median(costs.forward), _median(costs.backward - weight)
    message = float(costs.hop.max()) / forward
    return (
        1.0,
        round(inputs / forward, 3),
        round(_median(weight) / forward, 3),
        round(message, 3),
        kept_share(job, table),
    )


def kept_share(job: Job, table: PlanTable) -> float:
    """M_W / M_B = 32 h / (34 h + 5 a s), as the papers and their runtime count a limit.

    That is of layers whose attention keeps its scores: with fused attention, a schedule searched
    for this holds more than its limit says; what it holds then, `MemoryUse` tells. PyTorch's
    runtime frees nothing before W.

    Source: arXiv 2401.10241, table 1; sail-sg/zero-bubble-pipeline-parallelism 39f2c186,
    `f_mem_approx` and `w_mem_approx`.
    """
    attention, hidden = job.model.attention, job.model.hidden_size
    if splits_like_torch(job, table) or attention is None:
        return 1.0
    return round(32 * hidden / (34 * hidden + 5 * attention.heads * job.model.seq_len), 3)


def _median(stages: NDArray[np.float64]) -> float:
    return float(np.median(stages))
