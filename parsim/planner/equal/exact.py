"""Plans of one shape exactly: bytes first, then the step of those that a device holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Index, Ints
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.step import step_costs
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.planner.limits import in_order
from parsim.schedule import Schedule, build_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.sim.memory.activation_parts import peak_with_host
from parsim.sim.memory.buffers import logit_values
from parsim.sim.memory.eager_peaks import peak_memory
from parsim.sim.recurrence.evaluate import bubble_fraction, pipeline
from parsim.sim.recurrence.maxplus import step_end
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


class ExactShape:
    """B plans of one shape on their schedule, which is built once.

    A plan with `schedule: auto` is a shape by itself.
    """

    def __init__(self, job: Job, space: PlanSpace, table: PlanTable, layers: LayerTable) -> None:
        """Build the schedule of plans of a space whose layers are priced."""
        self.job, self.layers = job, layers
        self.table = _with_actions(job, space, table)
        self.compiled = compiled_of(self.table.plan(0))
        self.priced, self.costs = self.table, self._priced(self.table, layers)

    def _priced(self, table: PlanTable, layers: LayerTable) -> StepCosts:
        costs = step_costs(self.job, table, layers)
        return on_schedule(self.job, table, layers, costs, self.schedule)

    def _costs_of(self, rows: Index) -> StepCosts:
        """Costs of some plans, anew where they have other numbers of layers than at first."""
        if self.priced is self.table:
            return self.costs if len(rows) == len(self.table) else self.costs.take(rows)
        return self._priced(self.table.take(rows), self.layers.take(rows))

    def peaks(self, rows: Index | None = None) -> Array:
        """Bytes of the fullest rank of some plans, in their order; None: of all."""
        table, layers, costs = self.table, self.layers, self.costs
        if rows is not None:
            table, layers, costs = table.take(rows), layers.take(rows), costs.take(rows)
        memory = peak_memory(self.job, table, layers, costs, self.schedule)
        peak = peak_with_host(self.job, table, layers, memory, self.schedule)
        return np.asarray(peak.max(axis=0))

    @property
    def schedule(self) -> Schedule:
        """The actions that all plans share."""
        return self.compiled.schedule

    def recomputing(self, layers: Ints) -> None:
        """Let the plans recompute so many layers of each stage, (B,)."""
        self.table = replace(self.table, recompute_layers=layers)

    def freed(self) -> tuple[Array, Array]:
        """(a layer, once): bytes that the fullest rank can have less at most, (B,) each.

        With each recomputed layer more, and with the softmaxes that wait beside their logits where
        the fullest moment is another one then.
        """
        counts = inflight_counts(self.schedule)
        most = max(sum(moment) for moments in counts for moment in moments)
        scores = logit_values(self.job, self.table) * self.job.software.loss_saved
        return most * np.max(np.stack(self.layers.dropped), axis=0), most * scores

    def evaluated(self, peak: Array, capacity: float) -> ExactPlans:
        """The plans, whose bytes are known, simulated where they need at most `capacity`."""
        step, bubble = np.full(len(peak), np.inf), np.full(len(peak), np.nan)
        fits = np.flatnonzero(peak <= capacity)
        if len(fits):
            kept = self._costs_of(fits)
            result = pipeline(self.compiled, kept)
            step[fits] = step_end(self.compiled, kept, result).step_time
            bubble[fits] = bubble_fraction(self.compiled, kept, result)
        return ExactPlans(peak=peak, step=step, bubble=bubble)


def _with_actions(job: Job, space: PlanSpace, table: PlanTable) -> PlanTable:
    """The table with the order that was found for its plan, where one is to be searched for."""
    plan = table.plan(0)
    actions = in_order(job, space, plan).actions
    return table if actions == plan.actions else table.sharing({"actions": actions})


def compiled_of(plan: Plan) -> CompiledSchedule:
    """The actions of a plan, compiled."""
    name, pp, count, v = plan_shape(plan)
    if name == "naive":
        return compile_repeated(build_schedule(name, pp=pp, num_microbatches=count))
    return compiled_schedule(name, pp, count, v, actions=plan.actions, times=plan.action_times)
