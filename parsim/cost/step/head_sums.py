"""Sums of the gradients of key-value heads that several tensor-parallel ranks hold in copies.

    t = 4, one head      | backward | sum over 0 1 2 3 | reduce over replicas | update

Each copy has the gradient that its rank's query heads give. Ranks that hold the same head, tp over
the number of heads side by side, add theirs up once a step, ahead of their gradients' reduction.

Source: `executor/parallel/gradients/buckets.py`; transformers and Neuron sum over the ranks of a
head alike.
Leaves out: that FSDP (ZeRO-2 and 3) sums in every backward, not once a step.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import key_value_heads, shared_parameters
from parsim.cost.step.stages import over_kinds
from parsim.plan import PlanTable


def head_sums(job: Job, table: PlanTable, counts: Array) -> Array | float:
    """Seconds in which a rank's copies of heads get their gradients' sum, (S, B); 0.0 of none.

    `counts` are the layers of each kind on each stage, see `over_kinds`.
    """
    heads = key_value_heads(job.model.kinds)
    if heads is None or job.software.kv_heads != "copied" or not (table.tp > heads).any():
        return 0.0
    per_kind = np.stack([shared_parameters(layer, table) for layer in job.model.kinds])
    wide = table.common.gradient_precision == "fp32"
    size = over_kinds(counts, per_kind) * (4.0 if wide else float(table.precision.parameter))
    where = groups(
        job.system,
        size=table.tp // np.minimum(table.tp, heads),
        stride=table.stride("tp"),
        world=table.world_size,
    )
    summed = Message(kind="all_reduce", axis="tp", size=size, where=where).seconds(job.system)
    return np.where(size > 0.0, summed, 0.0)
