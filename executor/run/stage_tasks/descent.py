"""An optimizer for weights of which several versions live at once.

Weights in 16 bit are updated in fp32 values ("masters"), of which there is one version, the newest:

    version v    W (bf16) ---> version v + 1    round(master)      master: fp32, updated in place
"""

from __future__ import annotations

import torch
from torch import nn

from executor.pipeline.stage_groups import Weights
from executor.training.update_rule import OptimizerConfig, build_optimizer


class Descent:
    """An optimizer that updates whatever weights it is given, with states of its own.

    Its `rate` is that of the newest update; the schedule of rates counts steps, of which each has
    as many updates.
    """

    def __init__(self, weights: Weights, config: OptimizerConfig, updates_a_step: int = 1) -> None:
        """Know weights by their shapes; the masters of 16-bit ones begin as these."""
        self._updates_a_step, self.rate = updates_a_step, config.rate.at(0)
        self.values = [nn.Parameter(weight.to(torch.float32)) for weight in weights]
        self.config, self.taken = config, 0
        self.optimizer = build_optimizer([self.values], config)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def __call__(self, weights: Weights, gradient: Weights) -> None:
        """Turn weights into the next ones, in place; 16-bit ones are rounded masters."""
        self.rate = self.config.rate.at(self.taken // self._updates_a_step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        for value, weight, part in zip(self.values, weights, gradient, strict=True):
            if weight.dtype == value.dtype:
                value.data = weight
            value.grad = part.to(value.dtype)
        self.optimizer.step()
        self.taken += 1
        for value, weight in zip(self.values, weights, strict=True):
            value.grad = None
            if weight.dtype != value.dtype:
                weight.copy_(value)
