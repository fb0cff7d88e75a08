"""Gradient buckets: how many a stage has, by the plan's size or the software's rule.

    torch      ceil(bytes / 160 MB) on every stage
    megatron   ceil(parameters / max(40e6, 1e6 dp)) on the first stage, one on every other;
               one everywhere where gradients do not overlap with backward

A ring's latency is paid once a bucket and grows with the ranks; because Megatron's buckets grow
with them too, the latencies of a step have a limit: P / 1e6 steps of a ring, whatever dp is.

Source: Megatron-Core (commit 0011998), core/distributed/distributed_data_parallel.py: dp without
cp; later pipeline ranks, and chunks after the first, reduce in the drain, which one call uses best.
Leaves out: that buckets end at a parameter's end, their padding, and the shared embedding's own.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.software import Software
from parsim.plan import PlanTable
from parsim.plan.record import BUCKET_BYTES

LEAST_PARAMETERS, PARAMETERS_PER_REPLICA = 40e6, 1e6
"""Megatron's bucket: at least, and for each replica."""


def reduced_bytes(table: PlanTable) -> float:
    """Bytes per gradient element on the wire."""
    wide = table.common.reduce_precision == "fp32"
    return 4.0 if wide else float(table.precision.gathered)


def bucket_bytes(software: Software, table: PlanTable) -> Array:
    """Bytes of a bucket on the wire: of the plan, else of the software, else by its rule, (B,)."""
    if table.common.bucket_bytes is not None:
        return np.full(len(table), table.common.bucket_bytes)
    if software.ddp_bucket_parameters is not None:
        return np.full(len(table), software.ddp_bucket_parameters * reduced_bytes(table))
    if software.ddp_buckets == "megatron":
        parameters = np.maximum(LEAST_PARAMETERS, PARAMETERS_PER_REPLICA * table.dp)
        return np.asarray(parameters * reduced_bytes(table))
    return np.full(len(table), BUCKET_BYTES)


def bucket_count(software: Software, table: PlanTable, parameters: Array) -> Array:
    """Buckets of stages, or of pipeline ranks, with so many parameters each, at least 1, (S, B)."""
    size = parameters * reduced_bytes(table)
    count = np.maximum(np.ceil(size / bucket_bytes(software, table)), 1.0)
    if software.ddp_buckets != "megatron":
        return count
    several = np.zeros((*count.shape[:-1], 1))
    several[:1] = table.common.overlap_grad_reduce
    return np.where(several > 0, count, 1.0)
