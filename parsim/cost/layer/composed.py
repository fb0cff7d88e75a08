"""Bytes that eager PyTorch and autocast keep of a layer beyond what fused operators would.

SwiGLU is SiLU and a product, so SiLU's result is kept too. Where torch.compile fuses a layer it
keeps neither, and all else as before: what min-cut partitioning saved of a GPT-2 and a Llama layer
was counted tensor by tensor (torch 2.13, inductor: 3,680 and 4,344 bytes a token, eager 3,680 and
5,656).

On a CPU (`Software.composes`) dropout is a product with a mask of values, not of bytes, and
attention with dropout has no kernel of its own: softmax's result, the mask and their product are
kept for each score, no log-sum-exp, and keys and values as often as heads of queries. An RMSNorm
(weight, no bias) works in fp32 there and keeps its input and, for its weight's gradient, that
normalised, both in fp32.

Source: allocations of the executor's steps, recorded operator by operator (torch 2.13, CPU).
Leaves out: what torch.compile keeps of a CPU's dropout.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.layer.head_copies import beyond_share, rank_weights
from parsim.cost.software import Software
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Elementwise, Linear, Operator, Region
from parsim.plan import PlanTable, Recompute

SCORES = 3
"""Values kept for each score: of the softmax, the mask, their product."""
LOG_SUM = 4.0
"""Bytes of the log-sum-exp that a fused kernel keeps for each row of scores."""


def composed_kept(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that eager operators keep of a layer until its backward, (B,), beyond fused ones.

    None where all of the layer is repeated.
    """
    repeated = table.recompute == Recompute.SELECTIVE
    made = composed(layer, table, software) - repeated * _scores(layer, table, software)
    return np.asarray(np.where(table.recompute == Recompute.FULL, 0.0, made))


def composed(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that eager operators make in a layer's forward beyond fused ones, (B,)."""
    extra = np.zeros(len(table))
    if software.compile:
        return extra
    for op in layer.operators:
        if isinstance(op, Elementwise):
            extra = extra + _elementwise(op, table, software)
    return extra + _scores(layer, table, software)


def _elementwise(op: Elementwise, table: PlanTable, software: Software) -> Array:
    """Bytes that an operator on single values keeps beyond a fused one."""
    value = table.precision.activation
    tokens = table.on_rank(op.tokens) * op.width
    extra = np.zeros(len(table))
    if op.kind == "swiglu":
        extra = tokens * value / table.tp
    elif is_composed_norm(op, software):
        kept = (1.0 + op.trained) * WIDE  # a frozen weight needs nothing of what it multiplies
        extra = tokens * (kept - op.saved * value) / table.sequence_split
    if software.composes and op.mask and op.kind != "maxpool":  # whose indices are no mask
        split = table.tp if op.region is Region.TENSOR else table.sequence_split
        extra = extra + tokens * op.mask * (value - 1) / split
    return np.asarray(extra)


def is_composed_norm(op: Operator, software: Software) -> bool:
    """Whether an operator is an RMSNorm that is several kernels in fp32."""
    if not isinstance(op, Elementwise) or op.kind != "norm" or software.compile:
        return False
    return software.composes and op.repeated_parameters == op.width


def _scores(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that attention with dropout keeps beside what a kernel with a mask of bytes does."""
    value, total = table.precision.activation, np.zeros(len(table))
    if software.compile or not software.composes:
        return total
    for op in layer.operators:
        if not isinstance(op, Attention) or not op.dropout:
            continue
        tokens = table.on_rank(op.tokens) / table.tp
        scores = tokens * op.key_tokens * op.heads
        if not op.fused:
            total = total + scores * (value - 1)
            continue
        kept = beyond_share(op.kv_heads, op.kv_heads, table) * table.tp + op.kv_heads
        shared = (op.heads - kept) * (op.head_dim + op.output_dim)
        total = total + scores * SCORES * value + tokens * (shared * value - LOG_SUM * op.heads)
    return np.asarray(total)


WIDE = 4.0
"""Bytes of a value that is not cast."""


def casts_weights(table: PlanTable) -> Flags:
    """Whether products cast fp32 parameters, (B,)."""
    narrow = table.precision.parameter > table.precision.gathered
    return np.asarray(narrow & (table.zero_stage < 2))


def widened(table: PlanTable) -> Array:
    """By how much hidden states between layers are wider than what products read, (B,)."""
    return np.where(casts_weights(table), WIDE / table.precision.activation, 1.0)


def autocast_kept(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that autocast keeps of a layer and micro-batch, (B,): none where all is repeated."""
    made = autocast_made(layer, table, software)
    return np.asarray(np.where(table.recompute == Recompute.FULL, 0.0, made))


def autocast_made(layer: Layer, table: PlanTable, software: Software) -> Array:
    """Bytes that autocast makes in a layer's forward beside activations in 16 bit, (B,).

    Each forward casts the weights of its products to 16 bit anew, and backward needs the casts:
    every micro-batch in flight has its own. Hidden states between products, and so what norms keep,
    are fp32.

        made more of a layer = 2 bytes x weights of products
                             + (4 - 2) bytes x what its norms keep, unless that is in fp32 anyway

    Source: allocations of the executor's steps with bf16_amp (torch 2.13, CPU): 8 h bytes a token
    and layer of a Llama, and 2 bytes a weight and micro-batch. Leaves out: parameters that are
    gathered in 16 bit (ZeRO-2 and 3), which no cast is needed for.
    """
    casts = casts_weights(table)
    if not casts.any():
        return np.zeros(len(table))
    value = table.precision.activation
    total = np.zeros(len(table))
    for op in layer.operators:
        if isinstance(op, Linear):
            total = total + value * rank_weights(op, table)
        elif isinstance(op, Elementwise) and op.kind == "norm":
            values = table.on_rank(op.tokens) * op.width / table.sequence_split
            wide = is_composed_norm(op, software)
            total = total + (WIDE - value) * values * op.saved * (not wide)
    return np.asarray(np.where(casts, total, 0.0))
