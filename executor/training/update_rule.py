"""The rule by which values are updated: SGD or AdamW, its settings, and the rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import nn

from executor.training.scaling import FIRST_SCALE
from parsim.errors import InputError

LOWEST = 0.1
"""Where the cosine ends, as a share of the peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A schedule over `steps` steps, of which the first `warmup` rise; "constant" or "cosine".

        i < warmup    rate = peak (i + 1) / warmup
        behind it     rate = low + (peak - low) (1 + cos(pi x)) / 2,  low = peak / 10,
                      x from 0 at step `warmup` to 1 at the last one

    Source: SGDR (Loshchilov and Hutter 2017), as GPT-3 was trained (Brown et al. 2020, appendix B):
    linear warm-up, cosine decay to a tenth.
    """

    peak: float = 6e-4
    warmup: int = 0
    decay: str = "constant"
    steps: int = 0

    def at(self, step: int) -> float:
        """The rate of a step, counted from 0; behind the last one that of the last."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.decay == "constant":
            return self.peak
        length = max(self.steps - 1 - self.warmup, 1)
        share = min((step - self.warmup) / length, 1.0)
        return self.peak * (LOWEST + (1.0 - LOWEST) * (1.0 + math.cos(math.pi * share)) / 2.0)


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
