"""Bytes of parameters, gradients and optimizer states that stay on a rank for the whole run.

Source: Rajbhandari et al. 2020 (ZeRO) for shards. Leaves out: padding of shards.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.data.buckets import copies_gradients
from parsim.cost.job import Job
from parsim.cost.kernel.quantized import held_size
from parsim.plan import PlanTable


def static_bytes(
    job: Job, table: PlanTable, by_rank: Array, experts: Array | None = None
) -> tuple[Array, Array, Array]:
    """Parameters, gradients and optimizer states under ZeRO, (p, B) each.

    Mixed precision: 2 P + 4 P + 12 P with fp32 gradients; stage 1 shards the 12, 2 the 4, 3 the 2.
    Ranks of a context-parallel group hold the same parameters, so shards are over dp_shard x cp;
    `experts`, the part of `by_rank` that is theirs, over the ranks that hold the same experts.
    """
    shared, *routed = (_states(job, table, *part) for part in shared_out(table, by_rank, experts))
    for each in routed:
        shared = (shared[0] + each[0], shared[1] + each[1], shared[2] + each[2])
    return shared


def shared_out(
    table: PlanTable, by_rank: Array, experts: Array | None
) -> tuple[tuple[Array, Index], ...]:
    """Parameters of each rank, (p, B), with how many ranks share them out: experts' apart."""
    if experts is None:
        return ((by_rank, table.shards),)
    return (by_rank - experts, table.shards), (experts, table.expert_shards)


def _states(job: Job, table: PlanTable, by_rank: Array, over: Index) -> tuple[Array, Array, Array]:
    """Parameters, gradients and optimizer states, each shared out as its ZeRO stage says."""
    p, stage = table.precision, table.zero_stage
    shards = over.astype(np.float64)
    grad = _gradient_bytes(job, table)
    # FSDP's shards are the fp32 copy itself: 16-bit parameters exist only while gathered
    alone = (stage >= 3) & (job.software.fp32_shards and p.master > 0)
    return (
        by_rank * np.where(alone, p.master, held_size(job, p)) / np.where(stage >= 3, shards, 1.0),
        by_rank * np.where(alone, 4.0, grad) / np.where(stage >= 2, shards, 1.0),
        by_rank
        * (np.where(alone, 0.0, p.master) + job.optimizer.states)
        / np.where(stage >= 1, shards, 1.0),
    )


def _gradient_bytes(job: Job, table: PlanTable) -> float:
    """Bytes of a parameter's gradient, and of the bf16 one beside it (`Software.gradient_copy`)."""
    copied = table.precision.parameter if copies_gradients(job, table) else 0.0
    return table.summed_bytes + copied
