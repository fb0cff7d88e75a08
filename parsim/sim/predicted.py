"""The record of a prediction, from a step's times and memory: on equal nodes and on unlike ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Device
from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.sim.interval import Interval
from parsim.sim.known_errors import Standing
from parsim.sim.memory_spread import memory_spread
from parsim.sim.prediction import Prediction, SlotUse
from parsim.sim.reserved import reserved_bytes
from parsim.sim.utilisation import recomputed_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFound:
    """A step's seconds; `peak_flops` are those of a device, the mean one where they differ."""

    step_time: float
    interval: Interval
    standing: Standing
    pipeline_time: float
    device_span: float
    bubble_fraction: float
    breakdown: Mapping[str, float]
    peak_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFound:
    """A step's bytes: `highest` (p,) of each pipeline rank, with their parts `by_rank`.

    `fullest` is the pipeline rank with the least memory to spare, on a `device` of which `peak`
    are allocated; `activations` are those of that rank.
    """

    highest: NDArray[np.float64]
    by_rank: tuple[Mapping[str, float], ...]
    fullest: int
    peak: float
    activations: Mapping[str, float]
    device: Device


def prediction_of(
    job: Job,
    plan: Plan,
    step: StepFound,
    memory: MemoryFound,
    *,
    notes: tuple[str, ...],
    slots: Sequence[SlotUse] = (),
) -> Prediction:
    """Put them together, with what follows from them: throughput, utilisation, their intervals."""
    seconds, bubble = step.step_time, step.bubble_fraction
    model_flops = float(job.model.step_flops(plan.global_batch_size))
    capable = seconds * step.peak_flops * plan.world_size
    spread = memory_spread(job.software, plan.recompute, step.standing.sizes)
    return Prediction(
        plan=plan,
        step_time=seconds,
        interval=step.interval,
        standing=step.standing,
        pipeline_time=step.pipeline_time,
        tokens_per_second=plan.global_batch_size * job.model.seq_len / seconds,
        mfu=model_flops / capable,
        hfu=(model_flops + recomputed_flops(job, plan)) / capable,
        peak_flops=step.peak_flops,
        bubble_fraction=bubble,
        bubble_overhead=bubble / (1.0 - bubble),
        device_span=step.device_span,
        breakdown=step.breakdown,
        peak_allocated=tuple(float(x) for x in memory.highest),
        peak_reserved=tuple(float(x) for x in reserved_bytes(job.software, memory.highest)),
        memory=memory.by_rank[memory.fullest],
        memory_by_rank=memory.by_rank,
        activations=memory.activations,
        peak_interval=spread.interval(memory.peak),
        memory_evidence=spread.evidence,
        memory_basis=spread.basis,
        context=memory.device.context_memory,
        capacity=memory.device.memory,
        notes=notes,
        slots=tuple(slots),
    )
