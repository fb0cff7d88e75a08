"""Bytes of eager PyTorch between I and W: what a micro-batch keeps there beside what forward kept.

    F  keeps for backward    I  + gradients of what is trained, + all that it computed again
                                - what lies behind the last trained product, which nobody needs
    W  lets go of it all

PyTorch's I notes the gradient of what each operator with parameters gave, and runs W from there.
Its graph stays down from the last of them: all of it where everything is trained.

Source: `torch.distributed.pipelining._backward` of torch 2.13; allocations of the executor's steps.
Leaves out: stages without anything trained, of which nothing stays.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.composed import (
    WIDE,
    autocast_made,
    composed,
    is_composed_norm,
    widened,
)
from parsim.cost.layer.head_copies import copied_outputs, rank_values
from parsim.cost.layer.kept.half_products import matrices
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.software import Software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import over_kinds
from parsim.cost.step.step import repeated_layers, stage_cut
from parsim.model.adapters import FIRST, SECOND
from parsim.model.layer import Layer, is_trained
from parsim.model.model import Model
from parsim.model.operators import Elementwise, Experts, Linear, Operator, Split
from parsim.plan import PlanTable
from parsim.sim.memory.eager_kept import composed_kinds, made_bytes

NORM_VALUES = 4.0
"""Values of fp32 at the highest in the backward of a norm of several kernels, for each of its own;
one more where its gradient came narrower."""


def waiting_bytes(job: Job, table: PlanTable, layers: LayerTable, counts: Array) -> Array:
    """Kept from I to W beside what forward kept, one micro-batch on each stage, (S, B).

    None on the first stage, where I does nothing.
    """
    kinds = [_output_gradients(layer, table, job.software) for layer in job.model.kinds]
    rows: Array = counts @ np.stack(kinds) + _computed_again(job, table, layers, counts)
    for layer in job.model.behind:
        rows[-1] += _output_gradients(layer, table, job.software)
    rows = rows - released_bytes(job, table)
    rows[0] = 0.0
    return rows


def inner_moment(job: Job, table: PlanTable) -> Array:
    """Highest bytes of an I above what waits behind it, (B,): in the last layer that it meets.

    At a product by columns what its matrices (and its adapter) give, two of them and their sum; of
    frozen ones the gradients of their outputs too, which nobody notes; at a norm of several kernels
    what those make in fp32. What is ahead of it in the layer is not noted yet. The residual's
    gradient stands beside; where everything is trained it is the one noted of the last product.

    Source: allocations of such a backward (torch 2.13, CPU).
    """
    border = border_bytes(table, job.model.border) * widened(table)
    residual = border * (job.model.trained is not None)
    moments = [2.0 * border_bytes(table, job.model.border)]
    for layer in job.model.kinds:
        for position, op in enumerate(layer.operators):
            ahead = replace(layer, parts=layer.operators[:position])
            made = residual + _inside(layer, op, table, job.software)
            moments.append(made - _output_gradients(ahead, table, job.software))
    return np.asarray(np.max(np.stack(moments), axis=0))


def _inside(layer: Layer, op: Operator, table: PlanTable, software: Software) -> Array:
    """What one operator's backward makes at its highest, (B,); 0 of those that make little."""
    value = table.precision.activation
    if isinstance(op, Elementwise) and is_composed_norm(op, software):
        made = NORM_VALUES + (value < WIDE)
        return np.asarray(rank_values(op, table.on_rank(op.tokens), table) * made * WIDE)
    if not isinstance(op, Linear) or op.split is not Split.COLUMN or op.name.endswith(SECOND):
        return np.zeros(len(table))
    widths = [width for width, _ in matrices(layer, op)]
    adapted = any(getattr(each, "name", "") == f"{op.name}{FIRST}" for each in layer.operators)
    ways = 3 if len(widths) + adapted > 1 else 1
    noted = 0 if op.trained else sum(widths[:-1])
    return np.asarray(table.on_rank(op.tokens) * value * (ways * op.inputs + noted / table.tp))


def head_waits(model: Model) -> bool:
    """Whether the softmax of the logits stays until W: where the layers behind are trained."""
    return any(is_trained(part) for layer in model.behind for part in layer.parts)


def behind_trained(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that a layer keeps of what lies behind its last trained product, (B,)."""
    parts = tuple(takewhile(lambda part: not is_trained(part), reversed(layer.parts)))
    return made_bytes(replace(layer, parts=parts[::-1]), table, software)


def released_bytes(job: Job, table: PlanTable) -> Array:
    """What each stage lets go of when I ends, (S, B): of its last layer, and behind the last one.

    None on the first stage, where I does nothing.
    """
    cut = stage_cut(job, table)
    rows = np.zeros((len(cut), len(table)))
    if job.model.trained is None:
        return rows
    for stage, (size, end) in enumerate(zip(cut, np.cumsum(cut), strict=True)):
        if stage and size:
            rows[stage] = behind_trained(job.model.blocks[end - 1], table, job.software)
    if not head_waits(job.model):
        for layer in job.model.behind:
            rows[-1] += behind_trained(layer, table, job.software)
    return rows


def _computed_again(job: Job, table: PlanTable, layers: LayerTable, counts: Array) -> Array:
    """Bytes of what recomputation makes of a micro-batch beside what was kept of it, (S, B)."""
    software = job.software
    whole = [
        made + composed(layer, table, software) + autocast_made(layer, table, software)
        for layer, made in zip(job.model.kinds, layers.whole, strict=True)
    ]
    kept = np.stack(layers.kept) + composed_kinds(job, table)
    again = repeated_layers(job, table)
    rows = over_kinds(counts, np.stack(whole) - kept)
    return rows if again is None else rows + over_kinds(again, np.stack(layers.dropped))


def _output_gradients(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes of the gradients of what trained products, norms and experts gave, (B,).

    That of logits takes the place of their softmax, which is in fp32; a narrower one is beside it.
    """
    value, total = table.precision.activation, np.zeros(len(table))
    for op in (op for op in layer.operators if is_trained(op)):
        tokens = table.on_rank(op.tokens) * value
        if isinstance(op, Linear) and (op.name != "logits" or value < WIDE):
            split = table.tp if op.split is Split.COLUMN else table.sequence_split
            total = total + tokens * op.outputs / split + tokens * copied_outputs(op, table)
        elif isinstance(op, Elementwise) and op.kind == "norm":
            wide = WIDE / value if is_composed_norm(op, software) else 1.0
            total = total + rank_values(op, tokens, table) * wide
        elif isinstance(op, Experts):
            rows = tokens / table.sequence_split * op.top_k
            total = total + rows * (op.halves * op.ffn_hidden_size + op.width * table.etp)
    return total
