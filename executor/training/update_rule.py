"""The rule by which values are updated from their gradients: SGD or AdamW, and its settings."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from executor.training.rate import Rate
from executor.training.scaling import FIRST_SCALE
from parsim.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """Which optimizer and its settings; the defaults are those of GPT-3's training.

    `clip` is the norm that gradients are clipped to, 0 if they are not. The `momentum` is that of
    sgd_momentum, `loss_scale` where that of fp16 begins.
    """

    name: str = "adamw"
    rate: Rate = field(default_factory=Rate)
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    momentum: float = 0.9
    clip: float = 0.0
    loss_scale: float = FIRST_SCALE


def build_optimizer(
    groups: list[list[nn.Parameter]], config: OptimizerConfig
) -> torch.optim.Optimizer:
    """Torch's optimizer of that name over groups of parameters, at the highest of the rates.

    Raises:
        InputError: a name that is none.
    """
    given = [{"params": parameters} for parameters in groups]
    # fused: a quarter of the time of one kernel per operation, on CPU too
    if config.name in ("sgd", "sgd_momentum"):
        return torch.optim.SGD(
            given,
            lr=config.rate.peak,
            momentum=config.momentum if config.name == "sgd_momentum" else 0.0,
            weight_decay=config.weight_decay,
            fused=True,
        )
    if config.name == "adamw":
        return torch.optim.AdamW(
            given,
            lr=config.rate.peak,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
    raise InputError(f"optimizer={config.name!r} is unknown; allowed: adamw, sgd, sgd_momentum")
