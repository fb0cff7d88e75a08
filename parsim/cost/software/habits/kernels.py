"""What kernels a stack runs for a layer, and what these move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parsim.cost.software.habits.by_device import for_device


@dataclass(frozen=True, kw_only=True)
class KernelHabits:
    """What kernels a stack runs for a layer, and what these move."""

    # Bytes of memory-bound kernels over those of moving each value once.
    traffic: float
    # Whether torch.compile fuses the memory-bound kernels of each layer.
    compile: bool
    # How many times as much they move without it (0: the stack has no such switch).
    eager_traffic: float
    # Values that kinds of operators move forward and backward for each of theirs, where kernels are
    # counted one by one, or fused ("relu fp16": in that precision; `cost/layer/eager.py`).
    eager_values: Mapping[str, tuple[float, float]] = field(hash=False)
    # What takes the place of `eager_values` without torch.compile; empty: what it fuses is in
    # `eager_traffic`.
    uncompiled_values: Mapping[str, tuple[float, float]] = field(hash=False)
    # `traffic` of softmax and dropout over unfused attention's scores.
    scores_traffic: float
    # Bytes that forward and backward move beside, per 16-bit score of unfused attention.
    scores_beside: tuple[float, float]
    # How fast fused attention runs beside the vendor's best kernel, forward and backward, by the
    # start of a device id (or "default").
    attention_factor: Mapping[str, tuple[float, float]] = field(hash=False)
    # Whether attention is one kernel where the model does not say.
    fused_attention: bool
    # Whether dropout, attention with it and RMS norms are several kernels each
    # (`cost/layer/composed.py`).
    composes: bool
    # Whether products of weight gradients add to them, with no kernel of its own for that.
    fused_gradient_accumulation: bool
    # Whether matrices that read the same input share its exchange (`cost/layer/products.py`).
    joined_inputs: bool
    # Times that W reads its operands again, a norm's and a product's.
    split_reads: tuple[float, float]
    # Bytes that each backward moves per value of the token table.
    lookup_gradient: float
    # Bytes that the loss moves per logit.
    loss_bytes: float

    def attention_speed(self, device_id: str) -> tuple[float, float]:
        """(forward, backward) factor on the device's attention efficiency."""
        forward, backward = for_device(self.attention_factor, device_id)
        return float(forward), float(backward)
