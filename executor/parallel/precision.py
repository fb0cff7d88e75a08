"""Which dtypes a plan's precision means on the device.

             zero_stage 0, 1                      zero_stage 2, 3 (fully_shard)
fp32, tf32   fp32 throughout                      fp32 throughout
bf16         bf16 weights, fp32 copy apart        fp32 shards, gathered as bf16
bf16_amp     fp32 weights, autocast               fp32 shards, gathered as bf16, autocast

fp16 and fp16_amp are the same with fp16, and a scaled loss (executor/training/scaling.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from executor.model.stage import Stage
from parsim.plan import Plan, precision

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""What 16-bit products are computed in."""


def compute_dtype(name: str) -> torch.dtype:
    """What the products of a precision are computed in, to torch's eyes: tf32 is fp32 there."""
    return _DTYPES.get(precision(name).compute, torch.float32)


def is_autocast(name: str) -> bool:
    """Whether a precision computes in 16 bit over fp32 parameters."""
    return precision(name).parameter > precision(name).gathered


def storage_dtype(plan: Plan) -> torch.dtype:
    """What a stage's parameters are built in."""
    pure = precision(plan.precision).parameter == 2 and plan.zero_stage < 2
    return compute_dtype(plan.precision) if pure else torch.float32


def gathered_dtype(plan: Plan) -> torch.dtype:
    """What shards are gathered in."""
    return compute_dtype(plan.precision)


def gradient_dtype(plan: Plan) -> torch.dtype:
    """What gradients are added up in."""
    return torch.float32 if plan.gradient_precision == "fp32" else storage_dtype(plan)


def wire_dtype(plan: Plan) -> torch.dtype:
    """What gradients are sent in."""
    return torch.float32 if plan.reduce_precision == "fp32" else gathered_dtype(plan)


def edge_dtype(plan: Plan) -> torch.dtype:
    """What passes between stages: the dtype of the sum that all layers add to."""
    return gathered_dtype(plan) if plan.zero_stage >= 2 else storage_dtype(plan)


def logits_dtype(plan: Plan) -> torch.dtype:
    """What the head gives: its product's dtype, under autocast too."""
    return compute_dtype(plan.precision)


def autocast(plan: Plan, device: str) -> AbstractContextManager[object]:
    """Torch's autocast to what a plan's products are computed in, where its precision has it."""
    if not is_autocast(plan.precision):
        return nullcontext()
    narrow: AbstractContextManager[object] = torch.autocast(
        device, dtype=compute_dtype(plan.precision)
    )
    return narrow


def apply_autocast(stage: Stage, plan: Plan, device: str) -> None:
    """Let a stage's forward run under autocast, where the plan says so.

    Hidden states leave it as `edge_dtype`; norms under autocast give fp32. What torch computes fp32
    products and convolutions in is set too, which is global.
    """
    if is_autocast(plan.precision):
        inner, between = stage.forward, edge_dtype(plan)

        def forward(x: Tensor) -> Tensor:
            with autocast(plan, device):
                y = inner(x)
            return y if stage.gives_logits else y.to(between)

        stage.forward = forward
    compute_fp32_as(plan.precision)


def compute_fp32_as(name: str) -> None:
    """Let a GPU's fp32 products and convolutions run in TF32 where a precision says so, else not.

    By torch's defaults products do not and convolutions do. Both settings are the process's.
    """
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"


@contextmanager
def fp32_computed_as(name: str) -> Iterator[None]:
    """`compute_fp32_as` for a while."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    compute_fp32_as(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
