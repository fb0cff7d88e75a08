"""Bytes that stay for the whole run on the ranks that stand for a plan's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Columns, Flags
from parsim.cost.data.buckets import mean_bucket, reduced_bytes
from parsim.cost.job import Job
from parsim.cost.step.parameters import largest_layer_parameters, stage_experts, stage_parameters
from parsim.plan import PlanTable
from parsim.planner.bounds.parts import Parts
from parsim.sim.memory.categories import static_bytes
from parsim.sim.memory.eager_gradients import in_buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing(Columns):
    """Bytes of Q ranks of C plans: `fixed` (Q, C) for the whole run beside `gradients` (Q, C).

    Gradients stay, too, where `bucketed` (C,); elsewhere each is freed before the next step.
    """

    fixed: Array
    gradients: Array
    bucketed: Flags

    @classmethod
    def of(cls, job: Job, table: PlanTable, parts: Parts) -> Standing:
        """Count the ranks of a table with equal numbers of ranks that stand for all."""
        stages = stage_parameters(job.model, table, parts.counts)
        experts = stage_experts(job.model, table, parts.counts) if job.model.experts else None
        routed = None if experts is None else parts.sums(experts)
        fixed, gradients = _static(job, table, parts, parts.sums(stages), routed)
        bucketed = in_buckets(job, table) | (not job.software.eager)
        return cls(fixed=fixed, gradients=gradients, bucketed=bucketed)


def _static(
    job: Job, table: PlanTable, parts: Parts, by_rank: Array, routed: Array | None
) -> tuple[Array, Array]:
    """(all but gradients, gradients): bytes of each rank, (Q, C), for the whole run.

    With what ZeRO-3 holds gathered and the staging of a bucket; of eager PyTorch, whose moments
    hold those, without.
    """
    parameters, gradients, optimizer = static_bytes(job, table, by_rank, routed)
    fixed = parameters + optimizer
    if job.software.eager:
        return fixed, gradients
    bucket = np.minimum(mean_bucket(job, table), by_rank) * reduced_bytes(table)
    apart = not job.software.fused_gradient_accumulation
    stages = (table.dp * table.cp > 1) & (table.zero_stage < 3)
    return fixed + np.where(stages, apart * bucket, 0.0) + _gathered(job, table, parts), gradients


def _gathered(job: Job, table: PlanTable, parts: Parts) -> Array:
    """What ZeRO-3 holds gathered: a layer, embedding and head on their ranks, (Q, C)."""
    blocks = parts.sums(parts.counts.sum(axis=1)) > 0
    out = blocks * largest_layer_parameters(job.model, table)
    for row, outer in ((0, job.model.before), (-1, job.model.behind)):
        on_rank = parts.on_rank[:, row] > 0
        for part in outer:
            shared = part.split_parameters / table.tp + part.repeated_parameters
            out = out + np.where(on_rank, shared, 0.0)
    return np.where(table.zero_stage == 3, out * table.precision.gathered, 0.0)
