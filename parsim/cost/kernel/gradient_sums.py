"""How a stack sums the gradients of micro-batches, and what that moves in memory.

    same     16-bit sums: reads 2 and 2 bytes a parameter, writes 2
    fp32     hooks add each gradient to an fp32 one: reads 2 and 4, writes 4
    copied   bf16 gradients stand whole beside fp32 ones; each is widened (reads 2, writes 4), then
             added (reads 4 and 4, writes 4). ZeRO-1 shares out neither: the fp32 ones are reduced
             everywhere, and normed (4), clipped (8) and zeroed (4) whole by every rank

Source: DeepSpeed of October 2022 (commit 3432c740), runtime/bf16_optimizer.py: update_hp_grads,
step and clear_hp_grads; runtime/pipe/engine.py, _bf16_reduce_grads, which calls
buffered_allreduce_fallback of runtime/engine.py.
"""

from __future__ import annotations

from parsim.cost.job import Job
from parsim.plan import PlanTable

NORMED, CLIPPED, ZEROED = 4.0, 8.0, 4.0
"""Bytes a parameter of copied gradients that no rank shares out, after the last backward."""


def copies_gradients(job: Job, table: PlanTable) -> bool:
    """Whether bf16 gradients stand beside whole fp32 ones (`Software.gradient_copy`)."""
    p = table.precision
    wide = table.common.gradient_precision == "fp32"
    return job.software.gradient_copy and wide and p.compute == "bf16" and p.parameter == 2


def added_bytes(job: Job, table: PlanTable) -> float:
    """Bytes a parameter of adding a micro-batch's gradient to the sum by kernels of its own."""
    if table.common.gradient_precision != "fp32":
        return 6.0
    return 18.0 if copies_gradients(job, table) else 10.0


def unshared_bytes(job: Job, table: PlanTable) -> float:
    """Bytes a step moves for each parameter whose gradient a rank keeps for others."""
    if not copies_gradients(job, table):
        return 0.0
    return NORMED + (CLIPPED if job.clip else 0.0) + ZEROED
