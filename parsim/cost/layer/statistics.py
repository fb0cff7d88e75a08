"""Synchronised batch normalisation: replicas share their means and variances in every layer.

    forward    all-gather of 2 C + 1 fp32 values of each replica (means, variances, a count)
    backward   all-reduce of 2 C fp32 values (the two sums of the gradient)

Both stand on the critical path, and are so small that they are latency alone: 2 x layers x alpha.

Source: `torch.nn.SyncBatchNorm` (`torch/nn/modules/_functions.py`); one gather in place of three
took MobileNet-v2 on 8 P100 from 453 to 373 ms a step (pytorch pull request 38246).
Leaves out: batches that differ between replicas, which the count is for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.layer.passes import Exchange, PassPart
from parsim.model.operators import Elementwise
from parsim.plan import PlanTable

FP32 = 4.0


def statistics_messages(job: Job, table: PlanTable, op: Elementwise) -> tuple[Message, Message]:
    """The gather of forward and the reduction of backward, over all data-parallel ranks."""
    inner = np.where(table.dp_shard > 1, table.stride("dp_shard"), table.stride("dp_replicate"))
    where = groups(job.system, size=table.dp, stride=inner, world=table.world_size)
    gathered = np.asarray(table.dp, dtype=np.float64) * (2.0 * op.statistics + 1.0) * FP32
    summed = np.full(len(table), 2.0 * op.statistics * FP32)
    return (
        Message(kind="all_gather", axis="replicate", size=gathered, where=where),
        Message(kind="all_reduce", axis="replicate", size=summed, where=where),
    )


def statistics_exchanges(job: Job, table: PlanTable, op: Elementwise) -> Iterator[Exchange]:
    """What both take, where the plan synchronises its statistics and replicas are several."""
    if not op.statistics or not table.common.sync_batch_norm:
        return
    forward, backward = statistics_messages(job, table, op)
    yield Exchange(part=PassPart.FORWARD, exposed=forward.seconds(job.system))
    yield Exchange(part=PassPart.BACKWARD, exposed=backward.seconds(job.system))
