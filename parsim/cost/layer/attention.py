"""The kernels of the attention core, forward and backward, for one micro-batch per plan.

With context parallelism round a ring the core is one kernel for each block of keys and values
(cost/layer/context.py).

Shapes: b micro-batch, s sequence, a heads, d head size; cp divides the queries, tp the heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.kernel.kernels import gemm_time, memory_time
from parsim.cost.layer.context import copying, exposed_exchange, moving, on_ring, slowest_share
from parsim.cost.layer.operator_parts import Exchange, Kernel, Kernels, PassPart
from parsim.model.operators import Attention
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization

FORWARD, BACKWARD = "attention_forward", "attention_backward"
"""Kinds of the fused kernels."""

FLASH_BACKWARD = 2.5
"""Backward FLOPs of flash attention over forward: 5 products instead of 2 (Dao et al. 2022)."""


def attention_core(
    job: Job, table: PlanTable, op: Attention, how: Quantization | None = None
) -> Iterator[Kernels | Exchange]:
    """Price the attention core as the model says: one flash kernel, or its separate steps.

    Kernels of forward, kernels of backward, and where ranks exchange keys and values what shows of
    that in either direction. `how` is the recipe that quantises what a flash kernel takes in, None
    in 16 bit.
    """
    fused = op.fused and not (op.dropout and job.software.composes)
    return _flash(job, table, op, how) if fused else _unfused(job, table, op)


def _flash(
    job: Job, table: PlanTable, op: Attention, how: Quantization | None
) -> Iterator[Kernels | Exchange]:
    """4 b s_k (s/cp) (a/tp) d FLOPs forward, half of it causal; 2.5 times as many backward.

    Packed samples of l tokens are s / l texts of l tokens each, in one kernel. d is the mean of the
    heads' widths of keys and values; a window leaves less than half, but not
    of a backward in 8 bit (`_backward_seen`).

    A ring runs cp kernels of s_k/cp keys each and adds up their results.
    """
    square = 4.0 * table.on_rank(op.tokens) * op.key_tokens * op.heads * op.mean_dim / table.tp
    share = slowest_share(job, table, op)
    blocks = np.where(on_ring(job, table), table.cp, 1).astype(np.float64)
    flops = square * op.seen * share
    again = FLASH_BACKWARD * square * _backward_seen(op, how) * share
    first = _blocks(job, table, op, how, PassPart.CORE, flops, blocks)
    second = _blocks(job, table, op, how, PassPart.BACKWARD, again, blocks)
    calls = copying(job, table)
    for kernel, seconds in zip((first, second), moving(job, table, op), strict=True):
        # launches of adding up what the blocks of a ring came to are counted with the blocks
        yield (
            kernel,
            Kernel(kind="merge", part=kernel.part, shape=(flops,), seconds=seconds, launches=calls),
        )
    yield from _casts(job, table, op, how)
    ahead, behind = exposed_exchange(job, table, op, (first.total, second.total))
    yield Exchange(part=PassPart.CORE, exposed=ahead)
    yield Exchange(part=PassPart.BACKWARD, exposed=behind)


def _blocks(
    job: Job,
    table: PlanTable,
    op: Attention,
    how: Quantization | None,
    part: PassPart,
    flops: Array,
    blocks: Array,
) -> Kernel:
    """The fused kernels of one direction, one for each block of keys; `flops` are those of all.

    The results of a ring's blocks are added up by one launch more for each, backward by two.
    """
    backward = part is PassPart.BACKWARD
    shape = (flops / blocks, op.sample_tokens / blocks)
    return Kernel(
        kind=BACKWARD if backward else FORWARD,
        part=part,
        shape=shape,
        seconds=_flash_seconds(job, table, op, part, how, *shape),
        runs=blocks,
        launches=3 * blocks - 1 if backward else 2 * blocks - 1,
    )


def _backward_seen(op: Attention, how: Quantization | None) -> float:
    """Share of the full square of scores that backward computes.

    As forward, but in 8 bit a window spares it nothing.

    Source: NVIDIA/cudnn-frontend (commit 3929da2), cuDNN 9.22 on GB200 and GB300, windows of 128
    under 2,048 to 32,768 keys: backward in 8 bit takes the seconds of a whole causal triangle at
    530 to 1,180 TFLOP/s, forward those of the window.
    Leaves out: that heads of 64, which that table has, are a third slower than wider ones.
    """
    return op.seen if how is None else op.unwindowed


def _casts(
    job: Job, table: PlanTable, op: Attention, how: Quantization | None
) -> Iterator[Kernels]:
    """Quantising queries, keys and values forward and the output's gradient backward.

    `moved` bytes a value, of block scales both orientations (`beside`), and a launch a tensor; what
    comes out is of 16 bit.

    Source: Transformer Engine 2.16, `combine_and_quantize` of its fused attention.
    Leaves out: heads of keys and values that ranks hold copies of.
    """
    if how is None:
        return
    tokens, keys = table.on_rank(op.tokens), table.on_rank(op.key_tokens)
    width, moved = op.head_dim + op.output_dim, how.moved + (0.0 if how.turned else how.beside)
    entering = tokens * op.heads * op.head_dim + keys * op.kv_heads * width
    for part, values, launches in (
        (PassPart.CORE, entering / table.tp, 3),
        (PassPart.BACKWARD, tokens * op.heads * op.output_dim / table.tp, 1),
    ):
        seconds = memory_time(job.device, moved * values, launches)
        yield (Kernel(kind="cast", part=part, shape=(values,), seconds=seconds, launches=launches),)


def _flash_seconds(
    job: Job,
    table: PlanTable,
    op: Attention,
    part: PassPart,
    how: Quantization | None,
    flops: Array,
    keys: Array,
) -> Array:
    """Seconds of one fused kernel of so many FLOPs over so many keys, on the stack's attention."""
    forward, backward = job.software.attention_speed(job.device.id)
    return flash_attention_time(
        job.device,
        table.precision.compute,
        flops=flops,
        seq_len=keys,
        backward=part is PassPart.BACKWARD,
        efficiency=backward if part is PassPart.BACKWARD else forward,
        head_dim=op.head_dim,
        narrow=how.attention if how else None,
    )


def _unfused(job: Job, table: PlanTable, op: Attention) -> Iterator[Kernels]:
    """Two batched GEMMs and the traffic of softmax and dropout over b a s s_k scores.

    Each product has two of its size in backward; packed samples are masked, which spares nothing.
    """
    products = list(_products(job, table, op))
    twice = [replace(product, part=PassPart.BACKWARD, runs=2.0, launches=2) for product in products]
    yield (*products, _softmax(job, table, op, PassPart.CORE))
    yield (*twice, _softmax(job, table, op, PassPart.BACKWARD))


def _products(job: Job, table: PlanTable, op: Attention) -> Iterator[Kernel]:
    """Queries times keys, and their scores times values: forward, a product for each head."""
    s, d = float(op.key_tokens), float(op.head_dim)
    rows = np.asarray(float(op.tokens) / table.cp)
    batch = np.asarray(table.microbatch_size * op.heads / table.tp)
    used, value = table.precision.compute, table.precision.activation
    for n, k in ((s, d), (float(op.output_dim), s)):
        yield Kernel(
            kind="gemm",
            part=PassPart.CORE,
            shape=(rows * batch, n, k),
            seconds=gemm_time(job.device, used, m=rows, n=n, k=k, batch=batch, value=value),
            launches=1,
        )


def _softmax(job: Job, table: PlanTable, op: Attention, part: PassPart) -> Kernel:
    """Traffic of softmax and dropout over the scores in one direction.

    Forward softmax reads and writes the scores, dropout again with a mask byte: 9 bytes a score
    in 16 bit. Backward softmax reads two and writes one, dropout as before: 11 bytes. What a stack
    does to the scores beside (`scores_beside`) counts apart, without launches of its own.
    """
    backward, v = part is PassPart.BACKWARD, table.precision.activation
    rows = np.asarray(float(op.tokens) / table.cp)
    batch = np.asarray(table.microbatch_size * op.heads / table.tp)
    drop, values = 1 if op.dropout else 0, 3 if backward else 2
    beside = job.software.scores_beside[backward] * v / 2.0
    each = job.software.scores_traffic * (values * v + drop * (2 * v + 1)) + beside
    moved, launches = batch * rows * float(op.key_tokens) * each, 1 + drop
    seconds = memory_time(job.device, moved, launches)
    return Kernel(kind="", part=part, shape=(moved,), seconds=seconds, launches=launches)
