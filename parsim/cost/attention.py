"""Seconds of the attention core, forward and backward, for one micro-batch per plan.

With context parallelism the core is one kernel for each block of keys and values (cost/context.py).

Shapes: b micro-batch, s sequence, a heads, d head size; cp divides the queries, tp the heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.context import exposed_exchange, merging, on_ring, slowest_share
from parsim.cost.job import Job
from parsim.cost.kernels import flash_attention_time, gemm_time, memory_time
from parsim.model.operators import Attention
from parsim.plan import PlanTable

Array = NDArray[np.float64]

FLASH_BACKWARD = 2.5
"""Backward FLOPs of flash attention over forward: 5 products instead of 2 (Dao et al. 2022)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTimes:
    """Seconds (B,) and kernel launches of the attention core.

    `exposed_` is what shows of the exchange of keys and values between context-parallel ranks.
    """

    forward: Array
    backward: Array
    forward_launches: Array | int
    backward_launches: Array | int
    exposed_forward: Array
    exposed_backward: Array


def attention_times(job: Job, table: PlanTable, op: Attention) -> CoreTimes:
    """Price the attention core as the model says: one flash kernel, or its separate steps."""
    return _flash(job, table, op) if op.fused else _unfused(job, table, op)


def _flash(job: Job, table: PlanTable, op: Attention) -> CoreTimes:
    """4 b s (s/cp) (a/tp) d FLOPs forward, half of it causal; 2.5 times as many backward.

    d is the mean of the heads' widths of keys and values; a window leaves less than half.

    A ring runs cp kernels of s/cp keys each and adds up their results.
    """
    s = job.model.seq_len
    rows = table.microbatch_size * s / table.cp
    flops = 4.0 * rows * s * op.heads * op.mean_dim / table.tp * op.seen(s)
    flops = flops * slowest_share(job, table, op)
    blocks = np.where(on_ring(job), table.cp, 1).astype(np.float64)
    ahead, behind = job.software.attention_speed(job.device.id)

    def kernels(work: Array, backward: bool, efficiency: float) -> Array:
        block = flash_attention_time(
            job.device, table.precision.compute, flops=work / blocks, seq_len=s / blocks,
            backward=backward, efficiency=efficiency, head_dim=op.head_dim,
        )  # fmt: skip
        return np.asarray(blocks * block)

    core = kernels(flops, False, ahead), kernels(FLASH_BACKWARD * flops, True, behind)
    exposed, merged = exposed_exchange(job, table, op, core), merging(job, table, op)
    return CoreTimes(
        forward=core[0] + merged[0],
        backward=core[1] + merged[1],
        forward_launches=2 * blocks - 1,
        backward_launches=3 * blocks - 1,
        exposed_forward=exposed[0],
        exposed_backward=exposed[1],
    )


def _unfused(job: Job, table: PlanTable, op: Attention) -> CoreTimes:
    """Two batched GEMMs and the traffic of softmax and dropout over b a s^2 scores.

    Forward softmax reads and writes the scores, dropout again with a mask byte: 9 bytes a score
    in 16 bit. Backward softmax reads two and writes one, dropout as before: 11 bytes.
    """
    s, d, v = float(job.model.seq_len), float(op.head_dim), table.precision.activation
    rows = np.asarray(s / table.cp)
    batch = np.asarray(table.microbatch_size * op.heads / table.tp)
    drop = 1 if op.dropout else 0
    products = sum(
        gemm_time(job.device, table.precision.compute, m=rows, n=n, k=k, batch=batch, value=v)
        for n, k in ((s, d), (float(op.output_dim), s))
    )
    scores = batch * rows * s * job.software.scores_traffic
    ahead = memory_time(job.device, scores * (2 * v + drop * (2 * v + 1)), 1 + drop)
    behind = memory_time(job.device, scores * (3 * v + drop * (2 * v + 1)), 1 + drop)
    return CoreTimes(
        forward=products + ahead,
        backward=2.0 * products + behind,
        forward_launches=3 + drop,
        backward_launches=5 + drop,
        exposed_forward=np.zeros(len(table)),
        exposed_backward=np.zeros(len(table)),
    )
