"""Which dtypes a plan's precision means on the device.

             zero_stage 0, 1                      zero_stage 2, 3 (fully_shard)
fp32, tf32   fp32 throughout                      fp32 throughout
bf16         bf16 weights, fp32 copy apart        fp32 shards, gathered as bf16
bf16_amp     fp32 weights, autocast               fp32 shards, gathered as bf16, autocast
"""

from __future__ import annotations

import torch
from torch import Tensor

from executor.model.stage import Stage
from parsim.plan import Plan
from parsim.plan.precision import precision


def storage_dtype(plan: Plan) -> torch.dtype:
    """What a stage's parameters are built in."""
    pure = precision(plan.precision).parameter == 2 and plan.zero_stage < 2
    return torch.bfloat16 if pure else torch.float32


def gathered_dtype(plan: Plan) -> torch.dtype:
    """What shards are gathered in."""
    return torch.bfloat16 if precision(plan.precision).gathered == 2 else torch.float32


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
    return torch.bfloat16 if precision(plan.precision).compute == "bf16" else torch.float32


def apply_autocast(stage: Stage, plan: Plan, device: str) -> None:
    """Let a stage's forward run under autocast, where the plan says so.

    Hidden states leave it as `edge_dtype`; norms under autocast give fp32. For tf32 this sets
    torch's precision of fp32 matrix products, which is global.
    """
    if plan.precision == "bf16_amp":
        inner, between = stage.forward, edge_dtype(plan)

        def forward(x: Tensor) -> Tensor:
            with torch.autocast(device, dtype=torch.bfloat16):
                y = inner(x)
            return y if stage.gives_logits else y.to(between)

        stage.forward = forward
    if plan.precision == "tf32":
        torch.set_float32_matmul_precision("high")
