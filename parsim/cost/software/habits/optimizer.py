"""What a stack moves and launches to update parameters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OptimizerHabits:
    """What a stack moves and launches to update parameters."""

    # Bytes that a step of the optimizer moves per local parameter.
    optimizer_bytes: float
    # Host seconds of a step of the optimizer.
    optimizer_fixed: float
    # Host seconds of it for each tensor of parameters.
    tensor_update: float
    # Scalar all-reduces before it, for the norm of all gradients.
    norm_sums: float
    # Bytes that the norm of gradients moves, per local parameter.
    norm_bytes: float
    # Bytes that clipping them moves, per local parameter.
    clip_bytes: float
    # Bytes that fp16's scale of the loss adds, per local parameter.
    scaling_bytes: float
    # Scalar all-reduces that fp16's scale of the loss adds.
    scaling_sums: float
