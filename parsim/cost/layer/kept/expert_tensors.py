"""What experts keep for backward, and what of it is made again by name."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.kept.policy import product_input_bytes
from parsim.model.operators import Experts
from parsim.plan import PlanTable

ROUTED = 13.0
"""Bytes kept per token and expert: fp32 logits, probabilities and chosen weights, and a map."""


def expert_bytes(op: Experts, table: PlanTable, tokens: Array, product: float) -> Array:
    """What a layer's experts keep of one micro-batch, (B,).

    T k etp rows of: the first product's input (h), its outputs (f, 2 f if gated) for the activation
    and the second product's input (f / etp each); of T tokens the router's input (h) and 13 bytes
    an expert. Frozen products keep no input, nor does a frozen router.

    Source: what Megatron-Core's and torch's grouped products save; the weights of the sum are
    applied beside the activation, so the products' outputs are not kept.
    Leaves out: tokens that arrive in excess of the mean, where a router is not balanced.
    """
    value = table.precision.activation
    arrived = tokens / table.sequence_split
    rows = arrived * op.top_k * table.etp
    f = op.ffn_hidden_size / table.etp
    kept = product * op.trained * (op.width + f) + value * op.halves * f
    routed = value * op.width * op.trained + ROUTED * op.count
    return np.asarray(rows * kept + arrived * routed)


def spared_bytes(op: Experts, table: PlanTable, tokens: Array, again: frozenset[str]) -> Array:
    """Bytes that experts do not keep: the norm's output, what the activation made, or all rows."""
    arrived = tokens / table.sequence_split
    rows, f = arrived * op.top_k * table.etp, op.ffn_hidden_size / table.etp
    product, value = product_input_bytes(table) * op.trained, table.precision.activation
    spared = arrived * value * op.width * op.trained * ("layernorm" in again)
    if "moe" in again:
        inside = rows * (product * (op.width + f) + value * op.halves * f)
        return np.asarray(spared + inside + arrived * ROUTED * op.count)
    return np.asarray(spared + (rows * product * f if "moe_act" in again else 0.0))
