"""Plans of one shape exactly: bytes first, then the step of those that a device holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.stages import LayerTable
from parsim.cost.step.step import step_costs
from parsim.plan import Plan, PlanTable
from parsim.schedule import build_schedule
from parsim.sim.memory.eager_peaks import peak_memory
from parsim.sim.memory.host import peak_with_host
from parsim.sim.orders.auto import ordered
from parsim.sim.recurrence.evaluate import bubble_fraction, pipeline
from parsim.sim.recurrence.step_end import step_end
from parsim.sim.step.compiled_schedule import CompiledSchedule, compile_repeated, compiled_schedule
from parsim.sim.step.priced_step import plan_shape
from parsim.sim.step.schedule_costs import on_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPlans:
    """Bytes of the fullest rank, seconds of the step and the bubble of B plans, (B,) each.

    Step and bubble are infinite and nan where a plan does not fit.
    """

    peak: Array
    step: Array
    bubble: Array


def exact(job: Job, table: PlanTable, layers: LayerTable, capacity: Array) -> ExactPlans:
    """Count B plans of one shape in memory, and simulate those that need at most `capacity` (B,).

    A plan with `schedule: auto` is a shape by itself.
    """
    table = _with_actions(job, table)
    compiled = _compiled(table.plan(0))
    costs = step_costs(job, table, layers)
    costs = on_schedule(job, table, layers, costs, compiled.schedule)
    memory = peak_memory(job, table, layers, costs, compiled.schedule)
    peak = peak_with_host(job, table, layers, memory, compiled.schedule).max(axis=0)
    step, bubble = np.full(len(table), np.inf), np.full(len(table), np.nan)
    fits = np.flatnonzero(peak <= capacity)
    if len(fits):
        kept = costs.take(fits)
        result = pipeline(compiled, kept)
        step[fits] = step_end(compiled, kept, result).step_time
        bubble[fits] = bubble_fraction(compiled, kept, result)
    return ExactPlans(peak=peak, step=step, bubble=bubble)


def _with_actions(job: Job, table: PlanTable) -> PlanTable:
    """The table with the order that was found for its plan, where one is to be searched for."""
    plan = table.plan(0)
    actions = ordered(job, plan).actions
    return table if actions == plan.actions else table.sharing({"actions": actions})


def _compiled(plan: Plan) -> CompiledSchedule:
    name, pp, count, v = plan_shape(plan)
    if name == "naive":
        return compile_repeated(build_schedule(name, pp=pp, num_microbatches=count))
    return compiled_schedule(name, pp, count, v, actions=plan.actions, times=plan.action_times)
