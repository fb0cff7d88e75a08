"""What an operator may be, and the FLOPs that count as the model's."""

from __future__ import annotations

from parsim.model.networks import Convolution, Recurrent
from parsim.model.operators.attention import Attention
from parsim.model.operators.memory_bound import Elementwise, Lookup, Loss
from parsim.model.operators.products import Experts, Linear
from parsim.model.operators.timed import Timed

Operator = (
    Linear | Attention | Elementwise | Lookup | Loss | Experts | Convolution | Recurrent | Timed
)


def forward_flops(op: Operator, batch: int) -> int:
    """Model FLOPs of an operator's forward pass of `batch` samples (matrix products only)."""
    counted = Linear | Attention | Experts | Convolution | Recurrent
    return op.flops(batch) if isinstance(op, counted) else 0
