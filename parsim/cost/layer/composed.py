"""What eager PyTorch keeps of a layer beyond what fused operators would.

SwiGLU is SiLU and a product, so SiLU's result is kept too; an RMSNorm (weight, no bias) keeps the
normalised input beside the input. Where torch.compile fuses a layer it keeps neither, and all else
as before: what min-cut partitioning saved of a GPT-2 and a Llama layer was counted tensor by tensor
(torch 2.13, inductor: 3,680 and 4,344 bytes a token, eager 3,680 and 5,656).

On a CPU (`Software.composes_dropout`) dropout is a product with a mask of values, not of bytes, and
attention with dropout has no kernel of its own: softmax's result, the mask and their product are
kept for each score, no log-sum-exp, and keys and values as often as heads of queries.

Source: allocations of the executor's steps, recorded operator by operator (torch 2.13, CPU).
Leaves out: what torch.compile keeps of a CPU's dropout.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.head_copies import beyond_share
from parsim.cost.software import Software
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Elementwise, Region
from parsim.plan import PlanTable, Recompute

SCORES = 3
"""Values kept for each score: of the softmax, the mask, their product."""
LOG_SUM = 4.0
"""Bytes of the log-sum-exp that a fused kernel keeps for each row of scores."""


def composed_kept(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that a layer keeps so until its backward, (B,): none where all is repeated."""
    repeated = table.recompute == Recompute.SELECTIVE
    made = composed(layer, table, software) - repeated * _scores(layer, table, software)
    return np.asarray(np.where(table.recompute == Recompute.FULL, 0.0, made))


def composed(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that a layer's forward makes so, (B,)."""
    extra = np.zeros(len(table))
    if software.compile:
        return extra
    for op in layer.operators:
        if isinstance(op, Elementwise):
            extra = extra + _elementwise(op, table, software)
    return extra + _scores(layer, table, software)


def _elementwise(op: Elementwise, table: PlanTable, software: Software) -> Array:
    """Bytes that an operator on single values keeps so."""
    value = table.precision.activation
    tokens = table.on_rank(op.tokens) * op.width
    extra = np.zeros(len(table))
    if op.kind == "swiglu":
        extra = tokens * value / table.tp
    elif op.kind == "norm" and op.repeated_parameters == op.width:
        extra = tokens * value / table.sequence_split
    if software.composes_dropout and op.mask and op.kind != "maxpool":  # whose indices are no mask
        split = table.tp if op.region is Region.TENSOR else table.sequence_split
        extra = extra + tokens * op.mask * (value - 1) / split
    return np.asarray(extra)


def _scores(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that attention with dropout keeps beside what a kernel with a mask of bytes does."""
    value, total = table.precision.activation, np.zeros(len(table))
    if software.compile or not software.composes_dropout:
        return total
    for op in layer.operators:
        if not isinstance(op, Attention) or not op.dropout:
            continue
        tokens = table.on_rank(op.tokens) / table.tp
        scores = tokens * op.tokens * op.heads
        if not op.fused:
            total = total + scores * (value - 1)
            continue
        kept = beyond_share(op.kv_heads, op.kv_heads, table) * table.tp + op.kv_heads
        shared = (op.heads - kept) * (op.head_dim + op.output_dim)
        total = total + scores * SCORES * value + tokens * (shared * value - LOG_SUM * op.heads)
    return np.asarray(total)
