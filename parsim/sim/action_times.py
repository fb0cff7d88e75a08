"""How long a plan's F, I and W take: what the searched zero-bubble schedules are built for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, layer_counts
from parsim.cost.step import stage_cut
from parsim.plan import Plan, PlanTable
from parsim.schedule import TIMED, Times
from parsim.sim.evaluate import evaluate
from parsim.sim.memory import stage_kept
from parsim.sim.own_costs import weight_times
from parsim.sim.simulate import plan_shape
from parsim.sim.weight_memory import kept_for_weights, splits_like_torch


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
        _kept(job, table, layers),
    )


def _kept(job: Job, table: PlanTable, layers: LayerTable) -> float:
    if splits_like_torch(job, table):
        return 1.0
    kept = stage_kept(layers, layer_counts(job.model, stage_cut(job, table)))
    # more than F left, with recomputation, is memory that no order of actions saves
    return min(1.0, round(_median(kept_for_weights(job, table, layers) / kept), 3))


def _median(stages: NDArray[np.float64]) -> float:
    return float(np.median(stages))
