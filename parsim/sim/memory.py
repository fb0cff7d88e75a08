"""Bytes on each pipeline rank by category, at the peak, for B plans of one shape.

static (parameters, gradients, optimizer states) + activations in flight at the worst moment +
logits + temporary buffers + communication buffers + gathered parameters. The parts' own peaks are
added, which is an upper bound of the true peak and within a few percent of measured ones.

Source: Korthikanti et al. 2022 for activations, Rajbhandari et al. 2020 (ZeRO) for shards; the
transient of five weight gradients of the widest matrix is from 31 measured B200 runs (SimuMax).
Leaves out: allocator fragmentation (peak_reserved is 2 to 10 % above), the CUDA context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.sharding import reduced_bytes
from parsim.cost.stages import (
    LayerTable,
    largest_layer_parameters,
    layer_counts,
    per_rank,
)
from parsim.cost.step import StepCosts, stage_cut
from parsim.model.operators import Linear, Split
from parsim.plan import PlanTable, Recompute
from parsim.schedule import Schedule
from parsim.schedule.inflight import inflight_counts
from parsim.sim.own_costs import on_ranks

Array = NDArray[np.float64]

CATEGORIES = (
    "parameters", "gradients", "optimizer", "activations", "logits", "temporary",
    "communication", "gathered",
)  # fmt: skip

TRANSIENT_MATRICES = 5.0
"""Weight gradients of the widest matrix alive at once in backward (fit, SimuMax B200)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes per category, each (p, B)."""

    parameters: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    temporary: Array
    communication: Array
    gathered: Array

    @property
    def peak(self) -> Array:
        """Sum of all categories, (p, B)."""
        return np.asarray(np.sum([getattr(self, name) for name in CATEGORIES], axis=0))

    @property
    def static(self) -> Array:
        """What stays for the whole run, (p, B)."""
        return np.asarray(self.parameters + self.gradients + self.optimizer)

    def at(self, rank: int, row: int) -> dict[str, float]:
        """Category to bytes for one rank of one plan."""
        return {name: float(getattr(self, name)[rank, row]) for name in CATEGORIES}


def memory_use(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, schedule: Schedule
) -> MemoryUse:
    """Bytes of every category on every pipeline rank."""
    by_rank = on_ranks(costs.parameters, schedule)
    parameters, gradients, optimizer = static_bytes(job, table, by_rank)
    counts = layer_counts(job.model, stage_cut(job, table))
    zero = np.zeros_like(by_rank)
    logits = zero.copy()
    logits[schedule.stage_rank[-1]] = logit_bytes(job, table)
    return MemoryUse(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations_in_flight(stage_kept(layers, counts), schedule),
        logits=logits,
        temporary=zero + temporary_bytes(job, table, layers),
        communication=zero + communication_bytes(table, layers, by_rank),
        gathered=zero + gathered_bytes(job, table),
    )


def least_memory(job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts) -> Array:
    """A lower bound of the peak that needs no schedule, (p, B).

    Static bytes, temporary buffers and one micro-batch in flight on each chunk's stage alone.
    For stages where named schedules put them: stage s on rank s % pp.
    """
    pp = int(table.pp[0])
    static = sum(static_bytes(job, table, per_rank(costs.parameters, pp)))
    kept = stage_kept(layers, layer_counts(job.model, stage_cut(job, table)))
    one = kept.reshape(kept.shape[0] // pp, pp, -1).max(axis=0)
    return np.asarray(static + one + temporary_bytes(job, table, layers))


def static_bytes(job: Job, table: PlanTable, by_rank: Array) -> tuple[Array, Array, Array]:
    """Parameters, gradients and optimizer states under ZeRO, (p, B) each.

    Mixed precision: 2 P + 4 P + 12 P with fp32 gradients; stage 1 shards the 12, 2 the 4, 3 the 2.
    """
    p, stage = table.precision, table.zero_stage
    shards = table.shards.astype(np.float64)
    grad = 4.0 if table.common.gradient_precision == "fp32" else float(p.parameter)
    return (
        by_rank * p.parameter / np.where(stage >= 3, shards, 1.0),
        by_rank * grad / np.where(stage >= 2, shards, 1.0),
        by_rank * (p.master + p.optimizer) / np.where(stage >= 1, shards, 1.0),
    )


def stage_kept(layers: LayerTable, counts: Array) -> Array:
    """Bytes one micro-batch keeps on each stage between forward and backward, (S, B)."""
    rows: Array = counts @ np.stack(layers.kept)
    rows[0] += layers.embedding_kept
    rows[-1] += layers.head_kept
    return rows


def activations_in_flight(kept: Array, schedule: Schedule) -> Array:
    """Largest sum over a rank's chunks of micro-batches in flight times their bytes, (p, B)."""
    out = []
    for rank, moments in enumerate(inflight_counts(schedule)):
        stages = list(schedule.stages_on(rank))
        weights = np.array(moments, dtype=np.float64)
        out.append((weights @ kept[stages]).max(axis=0))
    return np.stack(out)


def logit_bytes(job: Job, table: PlanTable) -> Array:
    """Logits and the loss's copies of them on the last stage, (B,)."""
    tokens = table.microbatch_size * job.model.seq_len / table.cp
    return np.asarray(tokens * job.model.vocab_size / table.tp * job.software.loss_kept)


def temporary_bytes(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Recomputed activations of one layer, weight-gradient transients and workspaces, (B,)."""
    whole = np.max(np.stack(layers.whole), axis=0)
    kept = np.max(np.stack(layers.kept), axis=0)
    again = np.where(table.recompute == Recompute.NONE, 0.25 * whole, whole - kept)
    widest = max(
        (
            op.inputs * op.outputs
            for layer in job.model.kinds
            for op in layer.operators
            if isinstance(op, Linear) and op.split is not Split.NONE
        ),
        default=0,
    )
    transient = TRANSIENT_MATRICES * table.precision.activation * widest / table.tp
    fused = job.software.fused_gradient_accumulation
    return np.asarray(again + (0.2 if fused else 1.0) * transient + job.software.workspace)


def communication_bytes(table: PlanTable, layers: LayerTable, by_rank: Array) -> Array:
    """Staging of a gradient bucket and of messages to both neighbours, (p, B)."""
    bucket = np.minimum(table.common.bucket_bytes, by_rank * reduced_bytes(table))
    staged = np.where(table.dp * table.cp > 1, bucket, 0.0)
    messages = np.where(table.pp > 1, 4.0 * layers.boundary, 0.0)
    return np.asarray(staged + messages)


def gathered_bytes(job: Job, table: PlanTable) -> Array:
    """Two gathered layers and one layer's unsharded gradient under ZeRO-3, (B,)."""
    layer = largest_layer_parameters(job.model, table)
    both = layer * (2.0 * table.precision.gathered + reduced_bytes(table))
    return np.where(table.zero_stage == 3, both, 0.0)
