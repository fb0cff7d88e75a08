"""What autocast keeps of a layer beside its activations in 16 bit, in eager PyTorch.

Each forward casts the weights of its products to 16 bit anew, and backward needs the casts: every
micro-batch in flight has its own. Hidden states between products, and so what norms keep, are fp32.

    kept more of a layer = 2 bytes x weights of products
                         + (4 - 2) bytes x what its norms keep (their input, and RMSNorm's result)

Source: allocations of the executor's steps with bf16_amp (torch 2.13, CPU): 8 h bytes a token and
layer of a Llama, and 2 bytes a weight and micro-batch. Leaves out: parameters that are gathered in
16 bit (ZeRO-2 and 3), which no cast is needed for.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.layer.head_copies import rank_weights
from parsim.model.layer import Layer
from parsim.model.operators import Elementwise, Linear
from parsim.plan import PlanTable, Recompute

WIDE = 4.0
"""Bytes of a value that is not cast."""


def casts_weights(table: PlanTable) -> Flags:
    """Whether products cast fp32 parameters, (B,)."""
    narrow = table.precision.parameter > table.precision.gathered
    return np.asarray(narrow & (table.zero_stage < 2))


def widened(table: PlanTable) -> Array:
    """By how much hidden states between layers are wider than what products read, (B,)."""
    return np.where(casts_weights(table), WIDE / table.precision.activation, 1.0)


def autocast_kept(layer: Layer, table: PlanTable) -> Array:
    """Bytes that a layer keeps so of a micro-batch, (B,): none where all of it is repeated."""
    made = autocast_made(layer, table)
    return np.asarray(np.where(table.recompute == Recompute.FULL, 0.0, made))


def autocast_made(layer: Layer, table: PlanTable) -> Array:
    """Bytes that a layer's forward makes so, (B,)."""
    casts = casts_weights(table)
    if not casts.any():
        return np.zeros(len(table))
    value = table.precision.activation
    total = np.zeros(len(table))
    for op in layer.operators:
        if isinstance(op, Linear):
            total = total + value * rank_weights(op, table)
        elif isinstance(op, Elementwise) and op.kind == "norm":
            composed = op.repeated_parameters == op.width  # an RMSNorm
            values = table.on_rank(op.tokens) * op.width / table.sequence_split
            total = total + (WIDE - value) * values * (op.saved + composed)
    return np.asarray(np.where(casts, total, 0.0))
