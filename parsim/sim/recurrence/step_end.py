"""Tier B from the pipeline's last actions to the end of the step, many plans at once."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.step.step import StepCosts
from parsim.schedule import Kind
from parsim.sim.recurrence.maxplus import Run
from parsim.sim.recurrence.walk import Join, PipelineEnds, StepEnd, apart, walk
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule
from parsim.sim.step.priced_step import prices_of, program_of
from parsim.sim.step.schedule_costs import action_seconds


def step_end(
    compiled: CompiledSchedule, costs: StepCosts, result: Run, join: Join = apart
) -> StepEnd:
    """Finish the step after the pipeline phase; columns are plans, or classes that `join` joins."""
    program = program_of([compiled.schedule], costs)
    return walk(program, prices_of(costs), pipeline_ends(compiled, costs, result), join)


def pipeline_ends(compiled: CompiledSchedule, costs: StepCosts, result: Run) -> PipelineEnds:
    """When ranks end their actions and stages complete their gradients."""
    length, sent = last_backwards(compiled, costs)
    return PipelineEnds(result.clock, result.last_end - sent, length)


def last_backwards(compiled: CompiledSchedule, costs: StepCosts) -> tuple[Array, Array]:
    """Seconds of the action that completes each stage's gradients, and of its send, (S, B).

    A blocking send is on the compute stream behind a B; a W sends nothing.
    """
    by_weight = (compiled.duration_class[compiled.last_backward] % KINDS == Kind.W)[:, None]
    sent = np.zeros_like(costs.hop)
    if costs.blocking_p2p:
        rank = np.array(compiled.schedule.stage_rank)
        moves = (rank[1:] != rank[:-1])[:, None] & ~by_weight[1:]
        sent[1:] = np.where(moves, costs.hop[:-1], 0.0)
    seconds = action_seconds(costs)
    return np.where(by_weight, seconds[Kind.W], seconds[Kind.B]), sent
