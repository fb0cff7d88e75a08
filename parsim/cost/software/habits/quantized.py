"""What a stack does in 8 bit, and how it makes the values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class QuantizedHabits:
    """What a stack does in 8 bit, and how it makes the values."""

    # Whether a compiler folds casts to 8 bit into what makes their values.
    fused_casts: bool
    # Scales of 8-bit products with one a tensor: "delayed", from the maxima of steps before, or
    # "current", from the values themselves (`plan/precision.py`).
    fp8_scales: str
    # Whether sharded parameters of 8-bit products are gathered in 8 bit.
    quantized_gather: bool
    # Whether 8-bit training sends tokens to experts in 8 bit.
    quantized_dispatch: bool
    # Whether 8-bit training computes the logits in 8 bit too.
    quantized_logits: bool
    # Whether 8-bit training runs attention in 8 bit too.
    quantized_attention: bool
