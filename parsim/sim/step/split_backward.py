"""What a micro-batch keeps between I and W where the backward is in two.

    F  everything that backward needs       I  gone: scores, masks, what norms and GELU kept
    W  the rest                                left: input and output gradient of each product

PyTorch's runtime frees nothing of it before W; the papers' Megatron-LM does.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import copied_outputs
from parsim.cost.layer.kept.operator_tensors import product_input_bytes
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.model.layer import Layer
from parsim.model.operators import Experts, Linear, Split
from parsim.plan import PlanTable
from parsim.plan.schedule_names import SPLIT
from parsim.schedule import Kind, Schedule


def splits_like_torch(job: Job, table: PlanTable) -> bool:
    """Whether I and W are those of PyTorch's runtime: its own CSV, or a stack that is run by it.

    There I of stage 0 does nothing, as nobody needs the gradient of the model's input, and W is
    its whole backward; and activations stay until W. Megatron-LM with zero-bubble schedules takes
    the two products of each layer apart instead, on every stage.
    """
    from_user = table.common.actions is not None
    return from_user or job.software.eager or job.software.id == "torchtitan"


def frees_before_weights(job: Job, table: PlanTable, schedule: Schedule) -> bool:
    """Whether I leaves only what W needs."""
    return schedule.name in SPLIT and not splits_like_torch(job, table)


def is_split(schedule: Schedule) -> bool:
    """Whether any backward is in two actions."""
    return any(action.kind == Kind.I for action in chain.from_iterable(schedule.ranks))


def kept_for_weights(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Bytes that one micro-batch keeps on each stage between I and W, (S, B).

    A product Y = X W keeps X and the gradient of Y: tokens x (inputs + outputs) values, 32 s b h
    for a GPT layer in 16 bit. Sides that tensor parallelism splits are divided by tp, the others
    by tp with sequence parallelism. With full recomputation this is more than F left.

    Source: arXiv 2401.10241, table 1 (M_W = 32 s b h).
    Leaves out: an output gradient that two products share; the logits' gradient before the loss.
    """
    counts = layer_counts(job.model, stage_cut(job, table))
    rows: Array = counts @ np.stack([_products(job, table, kind) for kind in job.model.kinds])
    return rows


def _products(job: Job, table: PlanTable, layer: Layer) -> Array:
    product, value = product_input_bytes(table), table.precision.activation
    kept = np.zeros(len(table))
    for op in layer.operators:
        tokens = table.on_rank(op.tokens)
        whole, split = tokens / table.sequence_split, tokens / table.tp
        if isinstance(op, Linear):
            inputs = split if op.split is Split.ROW else whole
            outputs = split if op.split is Split.COLUMN else whole
            kept = kept + product * inputs * op.inputs + value * outputs * op.outputs
            kept = kept + value * tokens * copied_outputs(op, table)
        elif isinstance(op, Experts):
            rows = whole * op.top_k * table.etp * job.software.expert_imbalance
            f = op.ffn_hidden_size / table.etp
            kept = kept + rows * (product + value) * op.width
            kept = kept + rows * (product + value * op.halves) * f
    return kept
