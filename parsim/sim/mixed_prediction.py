"""What parsim says of one plan whose replicas differ: times, memory, and each device's part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parsim.cluster.hardware import Device
from parsim.cluster.mixed import in_groups
from parsim.cost.job import Job
from parsim.cost.step import stage_cut
from parsim.plan import Plan, PlanTable
from parsim.sim.activation_parts import activation_parts
from parsim.sim.interval import Interval, standing, step_interval
from parsim.sim.known_errors import Standing
from parsim.sim.mixed import MixedEvaluation, evaluate_mixed
from parsim.sim.mixed_costs import members
from parsim.sim.mixed_events import mixed_step_time
from parsim.sim.mixed_timeline import class_evaluation, mixed_timeline
from parsim.sim.predicted import MemoryFound, StepFound, prediction_of
from parsim.sim.prediction import Prediction, SlotUse
from parsim.sim.spans import device_span
from parsim.sim.step_breakdown import source_notes, step_breakdown
from parsim.sim.utilisation import SimulatorError

UNMEASURED = (
    "nodes of different kinds: no measured run of such a cluster is among parsim's rows, so that "
    "the interval is that of clusters of each kind alone"
)


def simulate_mixed(
    job: Job, plan: Plan, *, timeline: bool = False, events: bool = False
) -> Prediction:
    """Predict one legal plan on a mixed cluster, or with replicas of different batches.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        timeline: also build the timeline, a lane for each pipeline rank of each class of replicas.
        events: also run the step in simpy and refuse to answer where the two differ.

    Raises:
        SimulatorError: a guard found a bug of parsim.
    """
    job = replace(job, cluster=in_groups(job.cluster))
    found = evaluate_mixed(job, plan, keep=True)
    _guard(found)
    if events:
        _check_tiers(found)
    drawn = mixed_timeline(job, plan, found) if timeline else None
    return replace(_prediction(job, plan, found), timeline=drawn)


def _guard(found: MixedEvaluation) -> None:
    """As `simulate.guard`, for each class of replicas."""
    slack = found.clock.max(axis=0) - found.busy.max(axis=0)
    if (slack < -1e-9 * found.clock.max()).any():
        raise SimulatorError("negative bubble: a replica ends before its busiest rank")


def _check_tiers(found: MixedEvaluation) -> None:
    step = mixed_step_time(found)
    if abs(step / found.step_time - 1.0) > 1e-9:
        raise SimulatorError(f"tiers disagree: events {step!r} s, recurrence {found.step_time!r} s")


def _prediction(job: Job, plan: Plan, found: MixedEvaluation) -> Prediction:
    slots, step = slot_uses(job, plan, found), found.step_time
    where = standings(job, plan, found)
    return prediction_of(
        job,
        plan,
        StepFound(
            step_time=step,
            interval=mixed_interval(where, step),
            standing=where[0],
            pipeline_time=float(found.clock.max()),
            device_span=max(
                float(device_span(class_evaluation(found, c))) for c in range(len(found.graphs))
            ),
            bubble_fraction=bubble_fraction(found),
            breakdown=breakdown(found),
            peak_flops=mean_peak(job, plan),
        ),
        _memory(job, plan, found, slots),
        notes=mixed_notes(job),
        slots=slots,
    )


def _memory(job: Job, plan: Plan, found: MixedEvaluation, slots: Sequence[SlotUse]) -> MemoryFound:
    """Of the replica that needs the most; parts are those of the slot with the least to spare."""
    worst = max(slots, key=lambda slot: slot.peak_allocated / slot.usable)
    number = int(found.replicas.class_of[worst.replicas[0]])
    memory, schedule = found.memory_of(number), found.graphs[number].schedule
    group = members(int(found.slots.kinds[0, 0]))[0]
    return MemoryFound(
        highest=found.peak.max(axis=1),
        by_rank=tuple(memory.at(rank, 0) for rank in range(plan.pp)),
        fullest=worst.pipeline_rank,
        peak=worst.peak_allocated,
        activations=activation_parts(
            job.on(job.cluster.systems[group]), PlanTable.of([plan]), found.pricing.layers(group),
            memory, schedule, worst.pipeline_rank,
        ),
        device=_smallest(job, worst),
    )  # fmt: skip


def slot_uses(job: Job, plan: Plan, found: MixedEvaluation) -> tuple[SlotUse, ...]:
    """What every pipeline rank of every class of replicas is and does."""
    return tuple(
        _slot(job, plan, found, rank, number)
        for number in range(len(found.graphs))
        for rank in range(plan.pp)
    )


def _slot(job: Job, plan: Plan, found: MixedEvaluation, rank: int, number: int) -> SlotUse:
    replica = int(found.replicas.first[number])
    groups = [job.cluster.groups[i] for i in members(int(found.slots.kinds[rank, replica]))]
    cut = stage_cut(job, PlanTable.of([plan]))
    schedule = found.graphs[number].schedule
    return SlotUse(
        pipeline_rank=rank,
        replicas=tuple(np.flatnonzero(found.replicas.class_of == number).tolist()),
        groups=tuple(one.name for one in groups),
        devices=tuple(dict.fromkeys(one.system.device.id for one in groups)),
        layers=sum(cut[stage] for stage in schedule.stages_on(rank)),
        microbatches=schedule.num_microbatches,
        busy=float(found.busy[rank, number]),
        end=float(found.clock[rank, number]),
        peak_allocated=float(found.peak[rank, number]),
        usable=min(one.system.device.usable_memory for one in groups),
    )


def _smallest(job: Job, slot: SlotUse) -> Device:
    devices = [one.system.device for one in job.cluster.groups if one.name in slot.groups]
    return min(devices, key=lambda device: device.usable_memory)


def mean_peak(job: Job, plan: Plan) -> float:
    """Dense peak FLOP/s of a device, mean over all devices of the cluster."""
    products = PlanTable.of([plan]).precision.products
    peaks = {one.system.device.peak(products) for one in job.cluster.groups}
    if len(peaks) == 1:
        return peaks.pop()
    whole = sum(
        one.num_nodes * one.system.devices_per_node * one.system.device.peak(products)
        for one in job.cluster.groups
    )
    return whole / job.cluster.num_devices


def standings(job: Job, plan: Plan, found: MixedEvaluation) -> list[Standing]:
    """What an interval needs to know, of a cluster of each kind alone."""
    parts, peak, seen = breakdown(found), float(found.peak.max()), []
    for number, system in enumerate(job.cluster.systems):
        if system not in job.cluster.systems[:number]:
            layers = found.pricing.layers(number)
            seen.append(standing(job.on(system), plan, layers, parts, peak))
    return seen


def mixed_interval(where: list[Standing], step: float) -> Interval:
    """The widest bounds that a cluster of one of the kinds would have, and of which kind."""
    found = [step_interval(one, step) for one in where]
    widest = max(found, key=lambda one: one.high - one.low)
    basis = widest.basis + ("; none of a mixed cluster" if len(where) > 1 else "")
    low, high = min(one.low for one in found), max(one.high for one in found)
    return Interval(low=low, high=high, basis=basis)


def bubble_fraction(found: MixedEvaluation) -> float:
    """Idle share of the pipeline phase, mean over the ranks of all replicas; below 1e-12 is 0."""
    weights = found.replicas.count / found.slots.dp
    idle = 1.0 - float(found.busy.mean(axis=0) @ weights) / float(found.clock.max())
    return 0.0 if abs(idle) < 1e-12 else idle


def breakdown(found: MixedEvaluation) -> dict[str, float]:
    """Parts of the step that sum to `step_time`, mean over ranks of all replicas, seconds."""
    costs, tail = found.costs, found.tail
    shares = found.replicas.count / found.slots.dp
    counts = np.array([graph.schedule.num_microbatches for graph in found.graphs])
    weights = shares * counts / found.slots.pp
    return step_breakdown(
        costs,
        lambda stages: float(stages.sum(axis=0) @ weights),
        pipeline=float(found.clock.max()),
        busy=float(found.busy.mean(axis=0) @ shares),
        before=float(tail.barrier[0]),
        updated=float(tail.updated[0]),
        norm=float(costs.norm[0]),
        gather=float(costs.gather.max()),
        step=found.step_time,
    )


def mixed_notes(job: Job) -> tuple[str, ...]:
    """Where the constants came from, kind by kind, and what was not measured."""
    kinds = {system.id for system in job.cluster.systems}
    said = source_notes(job.cluster.systems, job.software)
    return (*said, UNMEASURED) if len(kinds) > 1 else said
