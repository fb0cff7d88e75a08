"""What eager PyTorch keeps of a layer beyond what fused operators would.

SwiGLU is SiLU and a product, so SiLU's result is kept too; an RMSNorm (weight, no bias) keeps the
normalised input beside the input. Where torch.compile fuses a layer it keeps neither, and all else
as before: what min-cut partitioning saved of a GPT-2 and a Llama layer was counted tensor by tensor
(torch 2.13, inductor: 3,680 and 4,344 bytes a token, eager 3,680 and 5,656).

Source: allocations of the executor's steps, recorded operator by operator (torch 2.13, CPU).
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.model.layer import Layer
from parsim.model.operators import Elementwise
from parsim.plan import PlanTable, Recompute


def composed_kept(layer: Layer, table: PlanTable, *, compiled: bool) -> Array:
    """Bytes that a layer keeps so until its backward, (B,): none where all is repeated."""
    if compiled:
        return np.zeros(len(table))
    return np.asarray(np.where(table.recompute == Recompute.FULL, 0.0, composed(layer, table)))


def composed(layer: Layer, table: PlanTable) -> Array:
    """Bytes that a layer's forward makes so, (B,)."""
    extra = np.zeros(len(table))
    for op in layer.operators:
        if not isinstance(op, Elementwise):
            continue
        tokens = table.on_rank(op.tokens) * table.precision.activation
        if op.kind == "swiglu":
            extra = extra + tokens * op.width / table.tp
        elif op.kind == "norm" and op.repeated_parameters == op.width:
            extra = extra + tokens * op.width / table.sequence_split
    return extra
