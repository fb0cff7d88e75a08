"""Gradients: how many buckets a stage has of them, and how a stack sums those of micro-batches.

    torch      ceil(bytes / 160 MB) on every stage
    megatron   of whole tensors, max(40e6, 1e6 dp) parameters or more, on the first stage, one on
               every other; one everywhere where gradients do not overlap with backward

A ring's latency is paid once a bucket and grows with the ranks; because Megatron's buckets grow
with them too, the latencies of a step have a limit: P / 1e6 steps of a ring, whatever dp is.

Source: Megatron-Core (commit 0011998), core/distributed/distributed_data_parallel.py: dp without
cp; later pipeline ranks, and chunks after the first, reduce in the drain, which one call uses best.
Leaves out: padding, and that a shared embedding has a bucket of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from parsim.arrays import Array, Flags, distinct
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.model.model import Model
from parsim.model.operators import Experts, Linear, Operator
from parsim.plan import PlanTable
from parsim.plan.fields import BUCKET_BYTES

LEAST_PARAMETERS, PARAMETERS_PER_REPLICA = 40e6, 1e6
"""Megatron's bucket: at least, and for each replica."""
ROUNDING = 1e-6
"""Parts of a bucket that are no bucket more."""


def reduced_bytes(table: PlanTable) -> float:
    """Bytes per gradient element on the wire."""
    wide = table.common.reduce_precision == "fp32"
    return 4.0 if wide else float(table.precision.gathered)


def bucket_parameters(software: Software, table: PlanTable) -> Array:
    """Parameters that close a bucket: the plan's, else the software's, else its rule's, (B,)."""
    rows = len(table)
    if table.common.bucket_bytes is not None:
        return np.full(rows, table.common.bucket_bytes / reduced_bytes(table))
    if software.ddp_bucket_parameters is not None:
        return np.full(rows, software.ddp_bucket_parameters)
    if software.ddp_buckets == "megatron":
        return np.asarray(np.maximum(LEAST_PARAMETERS, PARAMETERS_PER_REPLICA * table.dp))
    return np.full(rows, BUCKET_BYTES / reduced_bytes(table))


def mean_bucket(job: Job, table: PlanTable) -> Array:
    """Parameters of a mean bucket, (B,), as Megatron fills them: never less than what closes one.

    Tensors go into a bucket in the order of backward until it has enough, and none is cut: a layer
    of 8B with 59, 117, 17 and 25 million parameters fills three buckets of 40 million and more, and
    either vocabulary table one.
    """
    least = bucket_parameters(job.software, table)
    if job.software.ddp_buckets != "megatron":
        return least
    cases, back, _ = distinct(table.tp, least)
    filling = _filling(job.model.updated)
    filled = np.array([filling(float(tp), float(size)) for tp, size in zip(*cases, strict=True)])
    return filled if back is None else np.asarray(filled[back])


_FILLINGS: deque[tuple[Model, Callable[[float, float], float]]] = deque(maxlen=8)
"""The latest models and what fills their buckets: comparing or hashing a model takes longer."""


def _filling(model: Model) -> Callable[[float, float], float]:
    """What fills a model's buckets, by tp and by what closes one; a search asks it again and again.

    Mean parameters of the buckets that all of its tensors fill on one rank.
    """
    for known, filling in _FILLINGS:
        if known is model:
            return filling
    _FILLINGS.append((model, _filled_by(tuple(_tensors(model)))))
    return _FILLINGS[-1][1]


def _filled_by(tensors: tuple[tuple[float, ...], ...]) -> Callable[[float, float], float]:
    """Mean parameters of the buckets that tensors fill, by tp and by what closes one."""

    @lru_cache(maxsize=4096)
    def filled(tp: float, least: float) -> float:
        whole = filled = 0.0
        count = 0
        for split, repeated, copied, heads in tensors:
            size = split / tp + repeated + (copied / min(tp, heads) - copied / tp)
            whole, filled = whole + size, filled + size
            if filled >= least:
                count, filled = count + 1, 0.0
        return max(whole / max(count + (filled > 0.0), 1), least)

    return filled


def _tensors(model: Model) -> Iterator[tuple[float, ...]]:
    """Parameters of each operator that tp shares out, and that each rank has, without experts'.

    Of the first those of key-value heads, and how many these are. In the order of backward.
    """
    for layer in reversed(model.layers):
        for op in reversed(layer.operators):
            if not isinstance(op, Experts):
                yield op.split_parameters, op.repeated_parameters, *_of_heads(op)


def _of_heads(op: Operator) -> tuple[int, int]:
    """Parameters of key-value heads that ranks may hold in copies, and how many heads."""
    if isinstance(op, Linear) and op.shared is not None:
        return op.copied_parameters, op.shared.count
    return 0, 1


def bucket_count(software: Software, table: PlanTable, parameters: Array, mean: Array) -> Array:
    """Buckets of stages, or of pipeline ranks, with so many parameters each, at least 1, (S, B)."""
    count = np.maximum(np.ceil(parameters / mean - ROUNDING), 1.0)
    if software.ddp_buckets != "megatron":
        return count
    several = np.zeros((*count.shape[:-1], 1))
    several[:1] = table.common.overlap_grad_reduce
    return np.where(several > 0, count, 1.0)


NORMED, CLIPPED, ZEROED = 4.0, 8.0, 4.0
"""Bytes a parameter of copied gradients that no rank shares out, after the last backward."""


def copies_gradients(job: Job, table: PlanTable) -> bool:
    """Whether bf16 gradients stand beside whole fp32 ones (`Software.gradient_copy`)."""
    p = table.precision
    wide = table.common.gradient_precision == "fp32"
    return job.software.gradient_copy and wide and p.compute == "bf16" and p.parameter == 2


def sums_whole(job: Job, table: PlanTable) -> Flags:
    """Whether ZeRO-3's gradients add up whole over micro-batches, reduced with the last, (B,).

    Source: `set_requires_gradient_sync(False)` of torch's FSDP2, `no_sync` of its first one:
    gradients of all but the last micro-batch stay on their rank, unsharded.
    """
    several = np.asarray(table.num_microbatches) > 1
    return np.asarray((table.zero_stage == 3) & several & job.software.sums_whole)


def added_bytes(job: Job, table: PlanTable) -> float:
    """Bytes a parameter of adding a micro-batch's gradient to the sum by kernels of its own.

        same     16-bit sums: reads 2 and 2 bytes a parameter, writes 2
        fp32     hooks add each gradient to an fp32 one: reads 2 and 4, writes 4
        copied   bf16 gradients stand whole beside fp32 ones; each is widened (reads 2, writes 4),
                 then added (reads 4 and 4, writes 4)

    Source: DeepSpeed of October 2022 (commit 3432c740), runtime/bf16_optimizer.py: update_hp_grads.
    """
    if table.summed_bytes < 4.0:
        return 6.0
    return 18.0 if copies_gradients(job, table) else 10.0


def unshared_bytes(job: Job, table: PlanTable) -> float:
    """Bytes a step moves for each parameter whose gradient a rank keeps for others.

    ZeRO-1 shares out neither of two copies: the fp32 ones are reduced everywhere, and normed,
    clipped and zeroed whole by every rank.

    Source: DeepSpeed (same commit), `step` and `clear_hp_grads` there; runtime/pipe/engine.py,
    _bf16_reduce_grads, which calls buffered_allreduce_fallback of runtime/engine.py.
    """
    if not copies_gradients(job, table):
        return 0.0
    return NORMED + (CLIPPED if job.clip else 0.0) + ZEROED
