"""Predict one plan: the front door of the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from parsim.cost.coverage import coverage_notes
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.stages import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.sim.activation_parts import activation_parts
from parsim.sim.evaluate import Evaluation, evaluate
from parsim.sim.events import simulate_events
from parsim.sim.interval import standing, step_interval
from parsim.sim.mixed_prediction import simulate_mixed
from parsim.sim.predicted import MemoryFound, StepFound, prediction_of
from parsim.sim.prediction import Prediction
from parsim.sim.spans import device_span, first_starts
from parsim.sim.step_breakdown import source_notes, step_breakdown
from parsim.sim.trace import build_timeline
from parsim.sim.utilisation import SimulatorError

__all__ = ("SimulatorError", "device_span", "first_starts", "simulate")

Tier = Literal["evaluate", "events"]


def simulate(
    job: Job, plan: Plan, *, timeline: bool = False, tier: Tier = "evaluate"
) -> Prediction:
    """Predict step time, bubble, memory and utilisation of one plan.

    Args:
        job: model, cluster, software.
        plan: a legal plan; see `parsim.cost.legal.check_legal`.
        timeline: also build the timeline (times of every action, memory curves, critical path).
        tier: "evaluate" is the max-plus recurrence; "events" also runs the step in simpy and
            refuses to answer where the two differ.

    Raises:
        PlanError: the plan is not legal.
        SimulatorError: a guard found a bug of parsim.
    """
    check_legal(job, plan)
    if differ(job, plan):
        return simulate_mixed(job, plan, timeline=timeline, events=tier == "events")
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    found = evaluate(job, table, plan_shape(plan), layers, keep=True)
    guard(found)
    if tier == "events":
        _check_tiers(found)
    drawn = build_timeline(job, plan, layers, found) if timeline else None
    return replace(_prediction(job, plan, layers, found), timeline=drawn)


def differ(job: Job, plan: Plan) -> bool:
    """Whether replicas may have different times: by their nodes, or by their micro-batches."""
    return job.mixed or plan.replica_microbatches is not None


def plan_shape(plan: Plan) -> tuple[str, int, int, int]:
    """(schedule, pp, micro-batches, v); without a pipeline every schedule is the same loop."""
    return (plan.schedule if plan.pp > 1 else "1f1b", plan.pp, plan.num_microbatches, plan.v)


def guard(found: Evaluation) -> None:
    """Refuse impossible results: makespan below the busiest rank, negative bubble or memory."""
    slack = found.pipeline_time - found.busy.max(axis=0)
    if (slack < -1e-9 * found.pipeline_time).any() or (found.bubble_fraction < 0).any():
        raise SimulatorError("negative bubble: the pipeline ends before its busiest rank")
    if (found.memory.peak < found.memory.static).any():
        raise SimulatorError("peak memory is below static memory")


def _check_tiers(found: Evaluation) -> None:
    step = simulate_events(found.graph.schedule, found.costs).step_time
    if abs(step / float(found.step_time[0]) - 1.0) > 1e-9:
        raise SimulatorError(
            f"tiers disagree: events {step!r} s, recurrence {float(found.step_time[0])!r} s"
        )


def _prediction(job: Job, plan: Plan, layers: LayerTable, found: Evaluation) -> Prediction:
    memory = _memory(job, plan, layers, found)
    step, parts = float(found.step_time[0]), breakdown(found)
    where = standing(job, plan, layers, parts, memory.peak)
    return prediction_of(
        job,
        plan,
        StepFound(
            step_time=step,
            interval=step_interval(where, step),
            standing=where,
            pipeline_time=float(found.pipeline_time[0]),
            device_span=float(device_span(found)),
            bubble_fraction=float(found.bubble_fraction[0]),
            breakdown=parts,
            peak_flops=job.device.peak(PlanTable.of([plan]).precision.products),
        ),
        memory,
        notes=(*source_notes((job.system,), job.software), *coverage_notes(job, plan)),
    )


def _memory(job: Job, plan: Plan, layers: LayerTable, found: Evaluation) -> MemoryFound:
    highest, table = found.memory.peak[:, 0], PlanTable.of([plan])
    fullest = int(np.argmax(highest))
    schedule = found.graph.schedule
    return MemoryFound(
        highest=highest,
        by_rank=tuple(found.memory.at(rank, 0) for rank in range(len(highest))),
        fullest=fullest,
        peak=float(highest[fullest]),
        activations=activation_parts(job, table, layers, found.memory, schedule, fullest),
        device=job.device,
    )


def breakdown(found: Evaluation, row: int = 0) -> dict[str, float]:
    """Parts of one plan's step that sum to `step_time`, mean over pipeline ranks, seconds."""
    costs, graph, tail = found.costs, found.graph, found.tail
    m, pp = graph.schedule.num_microbatches, graph.schedule.pp
    return step_breakdown(
        costs,
        lambda stages: float(stages[:, row].sum()) * m / pp,
        pipeline=float(found.pipeline_time[row]),
        busy=float(found.busy[:, row].mean()),
        before=float(tail.barrier[row]),
        updated=float(tail.updated[row]),
        norm=float(costs.norm[row]),
        gather=float(costs.gather[:, row].max()),
        step=float(found.step_time[row]),
    )
