"""What the core of attention keeps for backward: operands, outputs and scores."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.layer.head_copies import beyond_share
from parsim.cost.layer.kept.policy import KeptPolicy
from parsim.model.adapters import FIRST
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Linear
from parsim.plan import CpCommType, PlanTable


def _operand_bytes(layer: Layer, op: Attention, table: PlanTable, policy: KeptPolicy) -> float:
    """Bytes of a query's, key's or value's number between forward and backward."""
    how = table.precision.quantization
    if how is None or layer.outer or not (policy.narrow_attention and op.fused):
        return float(table.precision.activation)
    return float(how.attended)


def core_operands(
    layer: Layer, op: Attention, table: PlanTable, policy: KeptPolicy, product: float
) -> Array:
    """Q, K and V; the output is the projection's input, of `product` bytes, and counted there.

    Where that is kept in 8 bit, or of a frozen projection not at all, a fused kernel still needs
    its own. With context parallelism and `policy.ring_output` one more tensor of the output's size
    is kept: 7 runs on B200 (SimuMax) keep 0.8 to 1.0 of it more in each layer than their formula
    without cp; which tensor it is the figures do not say. Blocks that are added up in place keep
    none; of all-to-alls see `core_scores`.
    """
    tokens, value = table.on_rank(op.tokens), table.precision.activation
    operand = _operand_bytes(layer, op, table, policy)
    times = op.key_tokens / op.tokens
    width = (op.heads + times * op.kv_heads) * op.head_dim + times * op.kv_heads * op.output_dim
    output = op.heads * op.output_dim
    elsewhere = product == value and _projection_keeps(layer)
    again = output if op.fused and not elsewhere else 0
    ring = np.where((table.cp > 1) & policy.ring_output & ~_by_heads(table, policy), output, 0)
    copied = beyond_share(op.kv_heads * (op.head_dim + op.output_dim), op.kv_heads, table) * times
    beside = (again + ring) * value
    return np.asarray(tokens * (width * operand + beside) / table.tp + tokens * copied * operand)


def _projection_keeps(layer: Layer) -> bool:
    """Whether a projection keeps its input, or its adapter does; other layers' do."""
    names = ("projection", f"projection{FIRST}")
    ways = [op for op in layer.operators if isinstance(op, Linear) and op.name in names]
    return not ways or any(op.trained and op.keeps_input for op in ways)


def _by_heads(table: PlanTable, policy: KeptPolicy) -> Flags:
    """Whether context ranks have heads of whole sequences in attention, (B,)."""
    kind = table.common.cp_comm_type or policy.cp_comm_type
    return np.asarray((table.cp > 1) & (kind is CpCommType.A2A))


def core_scores(op: Attention, table: PlanTable, policy: KeptPolicy) -> Array:
    """What the core itself keeps: its scores, or their sums and where ranks share heads its output.

    The projection behind it keeps the output by tokens, the core by heads.
    """
    tokens, value = table.on_rank(op.tokens), table.precision.activation
    if op.fused:  # one fp32 log-sum-exp per token and head
        output = np.where(_by_heads(table, policy), op.output_dim * value, 0.0)
        return np.asarray((4.0 + output) * tokens * op.heads / table.tp)
    each = 2 * value + 1 if op.dropout else value
    return np.asarray(tokens * op.key_tokens * op.heads * each / table.tp)
