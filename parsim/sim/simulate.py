"""Predict one plan: the front door of the simulator."""

from __future__ import annotations

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
from parsim.sim.memory_spread import memory_spread
from parsim.sim.mixed_prediction import simulate_mixed
from parsim.sim.prediction import Prediction
from parsim.sim.reserved import reserved_bytes
from parsim.sim.spans import device_span, first_starts
from parsim.sim.step_breakdown import source_notes, step_breakdown
from parsim.sim.trace import build_timeline
from parsim.sim.utilisation import SimulatorError, recomputed_flops

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
    return _prediction(job, plan, layers, found, drawn)


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


def _prediction(
    job: Job, plan: Plan, layers: LayerTable, found: Evaluation, drawn: object
) -> Prediction:
    step = float(found.step_time[0])
    peak = job.device.peak(PlanTable.of([plan]).precision.products)
    model_flops = float(job.model.step_flops(plan.global_batch_size))
    hardware = model_flops + recomputed_flops(job, plan)
    capable = step * peak * plan.world_size
    bubble = float(found.bubble_fraction[0])
    memory = found.memory.peak[:, 0]
    worst, schedule = int(np.argmax(memory)), found.graph.schedule
    parts = tuple(found.memory.at(rank, 0) for rank in range(len(memory)))
    parts_s = breakdown(found)
    where = standing(job, plan, layers, parts_s, float(memory[worst]))
    spread = memory_spread(job.software, plan.recompute, where.sizes)
    return Prediction(
        plan=plan,
        step_time=step,
        interval=step_interval(where, step),
        standing=where,
        pipeline_time=float(found.pipeline_time[0]),
        tokens_per_second=plan.global_batch_size * job.model.seq_len / step,
        mfu=model_flops / capable,
        hfu=hardware / capable,
        peak_flops=peak,
        bubble_fraction=bubble,
        bubble_overhead=bubble / (1.0 - bubble),
        device_span=float(device_span(found)),
        breakdown=parts_s,
        peak_allocated=tuple(float(x) for x in memory),
        peak_reserved=tuple(float(x) for x in reserved_bytes(job.software, memory)),
        memory=parts[worst],
        memory_by_rank=parts,
        activations=activation_parts(
            job, PlanTable.of([plan]), layers, found.memory, schedule, worst
        ),
        peak_interval=spread.interval(float(memory[worst])),
        memory_evidence=spread.evidence,
        memory_basis=spread.basis,
        context=job.device.context_memory,
        capacity=job.device.memory,
        notes=(*source_notes((job.system,), job.software), *coverage_notes(job, plan)),
        timeline=drawn,  # type: ignore[arg-type]
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
