"""Tier B and tier C of one case, and the finish times of each one's actions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parsim.cost.step.costs import StepCosts
from parsim.schedule import Action, Kind, Schedule
from parsim.sim.events.class_run import ClassRun, RunnableStep
from parsim.sim.events.step_run import StepRun, run_quietly
from parsim.sim.recurrence.evaluate import pipeline
from parsim.sim.recurrence.maxplus import Run, step_end
from parsim.sim.recurrence.walk import StepEnd
from parsim.sim.step.compiled_schedule import CompiledSchedule, compile_schedule
from parsim.sim.step.priced_step import prices_of, program_of
from parsim.strategy.synchronous import LATE
from parsim.timelines.timeline import Span
from tests.parsim.sim.cases import Case


class BothTiers(NamedTuple):
    """One case by the recurrence, with its end, and by discrete events."""

    compiled: CompiledSchedule
    run: Run
    end: StepEnd
    events: StepRun


def simulate_events(schedule: Schedule, costs: StepCosts) -> StepRun:
    """Run the step of one class of replicas in tier C."""
    return run_quietly(
        RunnableStep(
            program=program_of([schedule], costs),
            prices=prices_of(costs),
            sharers=np.ones((1, 1), dtype=bool),
            classes=(ClassRun.of(schedule, costs),),
        )
    )


def both_tiers(case: Case) -> BothTiers:
    """Run a case in tier B and in tier C."""
    compiled = compile_schedule(case.schedule)
    result = pipeline(compiled, case.costs, keep=True)
    end = step_end(compiled, case.costs, result)
    return BothTiers(compiled, result, end, simulate_events(*case))


def finish_times(compiled: CompiledSchedule, run: Run) -> dict[Action, float]:
    """Ends of all actions in tier B."""
    assert run.finish is not None
    actions = [action for row in compiled.schedule.ranks for action in row]
    ends = run.finish[compiled.position, 0]
    return dict(zip(actions, ends.tolist(), strict=True))


def finish_events(case: Case, events: StepRun) -> dict[Action, float]:
    """Ends of all actions in tier C, which notes the end of compute; a blocking send ends later."""
    ends = {action_of(span): span.end for span in events.spans if span.kind in ACTIONS}
    if case.costs.blocking_p2p:
        sends = [span for span in events.spans if span.kind in SENT]
        ends |= {made_by(case, span): span.end for span in sends}
    return ends


def reduced_events(events: StepRun) -> list[float]:
    """When each rank has reduced its gradients and done its last action, in tier C."""
    program = events.program
    before = program.tasks[: program.order[LATE]]
    return [
        max(
            events.pipelines[0].clock[rank],
            *(events.ends[task.name, rank, 0] for task in before if rank in task.ranks),
        )
        for rank in range(program.ranks)
    ]


ACTIONS = ("F", "B", "I", "W")
SENT = ("SEND_F", "SEND_B")
"""Messages ahead, by F, and back, by B or I."""


def action_of(span: Span) -> Action:
    """The action that a span of the compute stream is."""
    return Action(span.stage, Kind[span.kind], span.microbatch)


def made_by(case: Case, send: Span) -> Action:
    """The action that sends a message."""
    kinds = (Kind.F,) if send.kind == "SEND_F" else (Kind.B, Kind.I)
    (action,) = (
        action
        for action in (Action(send.stage, kind, send.microbatch) for kind in kinds)
        if action in case.schedule.ranks[send.rank]
    )
    return action
