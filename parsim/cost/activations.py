"""Bytes that a layer keeps between forward and backward of one micro-batch, per plan.

Source: Korthikanti et al. 2022 (arXiv:2205.05198), section 4; for a GPT layer without fused
attention the sum is s b h (10 + 24/t + 5 a s / (h t)), equal to the paper's equation 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsim.model.operators import Attention, Elementwise, Layer, Linear, Operator, Region, Split
from parsim.plan import PlanTable, Recompute
from parsim.plan.record import Quantization

Array = NDArray[np.float64]


def kept_bytes(
    layer: Layer, table: PlanTable, seq_len: int, hidden_size: int, *, half_products: bool = False
) -> Array:
    """Bytes a layer keeps under each plan's recomputation policy, (B,).

    Full recomputation keeps the layer's input only; selective drops the attention scores, or
    with `half_products` keeps the input, the attention's output and every second product's.
    """
    everything = whole_bytes(layer, table, seq_len)
    scores = sum(
        (_scores(op, table, seq_len) for op in layer.operators if isinstance(op, Attention)),
        start=np.zeros(len(table)),
    )
    boundary = boundary_bytes(table, seq_len, hidden_size)
    chosen = everything - scores
    if half_products:
        chosen = boundary + _half_products(layer, table, seq_len)
    kept = np.where(table.recompute == Recompute.SELECTIVE, chosen, everything)
    return np.where(table.recompute == Recompute.FULL, boundary, kept)


def _half_products(layer: Layer, table: PlanTable, seq_len: int) -> Array:
    """Attention outputs and half of the outputs of all matrix products, (B,)."""
    tokens = table.microbatch_size * seq_len / table.cp
    split_width = whole_width = 0.0
    for op in layer.operators:
        if isinstance(op, Attention):
            split_width += op.heads * op.head_dim
        elif isinstance(op, Linear) and op.split is Split.COLUMN:
            split_width += 0.5 * op.outputs
        elif isinstance(op, Linear):
            whole_width += 0.5 * op.outputs
    value = table.precision.activation
    rows = split_width / table.tp + whole_width / table.sequence_split
    return np.asarray(tokens * rows * value)


def whole_bytes(layer: Layer, table: PlanTable, seq_len: int) -> Array:
    """Bytes a layer keeps when nothing is recomputed, (B,)."""
    # the head's product is never quantised (cost/quantized.py)
    how = None if layer.name == "head" else table.precision.quantization
    parts = [_kept(op, table, seq_len, how) for op in layer.operators]
    return sum(parts, start=np.zeros(len(table)))


def boundary_bytes(table: PlanTable, seq_len: int, hidden_size: int) -> Array:
    """Bytes of the activations between two layers on one rank, (B,)."""
    tokens = table.microbatch_size * seq_len / table.cp
    return np.asarray(tokens * hidden_size * table.precision.activation / table.sequence_split)


def _kept(op: Operator, table: PlanTable, seq_len: int, how: Quantization | None = None) -> Array:
    tokens = table.microbatch_size * seq_len / table.cp
    value = table.precision.activation
    if isinstance(op, Linear):
        split = {Split.COLUMN: table.sequence_split, Split.ROW: table.tp}.get(op.split, 1)
        rows = table.microbatch_size if op.per_sequence else tokens
        return np.asarray(rows * op.inputs * (how.kept if how else value) / split)
    if isinstance(op, Elementwise):
        split = table.tp if op.region is Region.TENSOR else table.sequence_split
        return np.asarray(tokens * op.width * (op.saved * value + op.saved_mask) / split)
    if isinstance(op, Attention):
        return _heads(op, table, tokens) + _scores(op, table, seq_len)
    return np.zeros(len(table))


def _heads(op: Attention, table: PlanTable, tokens: Array) -> Array:
    width = (op.heads + 2 * op.kv_heads) * op.head_dim
    return np.asarray(tokens * width * table.precision.activation / table.tp)


def _scores(op: Attention, table: PlanTable, seq_len: int) -> Array:
    tokens = table.microbatch_size * seq_len / table.cp
    if op.fused:  # one fp32 log-sum-exp per token and head
        return np.asarray(4.0 * tokens * op.heads / table.tp)
    value = table.precision.activation
    each = 2 * value + 1 if op.dropout else value
    return np.asarray(tokens * seq_len * op.heads * each / table.tp)
