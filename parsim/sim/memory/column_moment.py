"""Bytes at the backward of a product split by columns whose input lies divided over the sequence.

    T h of whole tokens each    what is gathered of the input, and again in the order of tokens; the
                                input's gradient, again in the order of ranks, and the library's
                                copy while it is scattered
    T h / t                     this rank's part of that gradient

One sequence to a micro-batch is in order as it comes, without the second copies. The output
projection and an MLP's first product are highest so, the latter where the MLP's activations, gone
by then, are fewer.

Source: `executor/parallel/columns.py`; allocations recorded operator by operator (torch 2.13, CPU).
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.composed import composed
from parsim.cost.layer.head_copies import rank_outputs
from parsim.cost.layer.kept.activations import whole_parts
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.model.layer import Layer
from parsim.model.operators import Linear, Split
from parsim.plan import PlanTable


def exchanged_bytes(job: Job, table: PlanTable, values: int) -> Array:
    """Whole tensors of so many values a sample beside the rank's part, (B,); 0 if not divided."""
    copies = 2.0 + job.software.scatter_copies + 2.0 * (table.microbatch_size > 1)
    whole = table.on_rank(values) * table.precision.activation
    return np.where(table.sequence_split > 1, copies * whole, 0.0)


def column_moment(job: Job, table: PlanTable) -> Array:
    """Bytes above what a layer keeps when its last product by columns goes back, (B,)."""
    moments = [_moment(job, table, layer) for layer in job.model.kinds]
    return np.where(table.sequence_split > 1, np.max(np.stack(moments), axis=0), 0.0)


def _moment(job: Job, table: PlanTable, layer: Layer) -> Array:
    products = [op for op in layer.operators if isinstance(op, Linear) and op.split is Split.COLUMN]
    if not products:
        return np.zeros(len(table))
    last, value = products[-1], table.precision.activation
    outputs = (table.on_rank(last.tokens) + last.inputs) * rank_outputs(last, table) * value
    entering = border_bytes(table, last.tokens * last.inputs)
    behind = whole_parts(layer, table).get("mlp", entering) - entering
    gone = behind + composed(layer, table, job.software)
    return exchanged_bytes(job, table, last.tokens * last.inputs) + outputs - gone
