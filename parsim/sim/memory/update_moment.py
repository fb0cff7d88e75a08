"""What stands on a rank during the update, when no activations are left.

copies   of the gradients that the optimizer, or the sum over replicas, makes
lists    of tensors that the optimizer works with
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.data.buckets import copies_gradients
from parsim.cost.job import ADAMW, Job
from parsim.cost.layer.composed import WIDE
from parsim.plan import PlanTable


def update_copies(job: Job, table: PlanTable, by_rank: Array, over: Index) -> Array:
    """Copies of gradients at the update's highest moment, (p, B), for `by_rank` (p, B) parameters.

    An optimizer that widens 16-bit gradients has those of its shard joined and in fp32 beside them
    (`Software.update_copies`); `over` (B,) ranks share a parameter out. A plan of one replica,
    which cannot say a ZeRO stage, is taken to run the sharded optimizer. Copied gradients, fp32
    already, are all-reduced as one 16-bit copy, which no rank shares out. An update
    on the host makes none on the device.

    Source: DeepSpeed, as the catalog says; of October 2022 (commit 3432c740), runtime/engine.py:
    communication_data_type and allreduce_bucket, to which the whole fp32 buffer is one tensor.
    Leaves out: ZeRO-3, which updates at most a sub-group of 1e9 parameters at a time.
    """
    p, stage = table.precision, table.zero_stage
    if table.common.optimizer_offload:
        return np.zeros_like(by_rank)
    if copies_gradients(job, table):
        return np.asarray(by_rank * p.parameter)
    widens = p.master > 0 and table.summed_bytes < WIDE
    whole, shard = job.software.update_copies
    sharded = np.where(stage < 3, shard / over, 0.0)
    replicated = (stage == 0) & (table.dp * table.cp > 1)
    return np.asarray(widens * by_rank * np.where(replicated, whole, sharded))


def moment_lists(job: Job, table: PlanTable, by_rank: Array, over: Index) -> Array:
    """Bytes of tensors as large as a moment that AdamW makes for all parameters at once, (p, B).

    `over` (B,) ranks share a parameter out where states are sharded.

    Source: torch 2.4, optim/adamw.py, _multi_tensor_adamw: _foreach_sqrt of all second moments is a
    list of its own; one foreach call has all tensors of a device and a type.
    """
    if job.optimizer != ADAMW or table.common.optimizer_offload:
        return np.zeros_like(by_rank)
    each = job.software.update_lists * table.precision.moment
    return np.asarray(by_rank * each / np.where(table.zero_stage >= 1, over, 1))
