"""An optimizer for weights of which several versions live at once."""

from __future__ import annotations

from torch import nn

from executor.pipeline.stage_order import Weights
from executor.training.update_rule import OptimizerConfig, build_optimizer


class Descent:
    """An optimizer that updates whatever weights it is given, with states of its own."""

    def __init__(self, weights: Weights, config: OptimizerConfig) -> None:
        """Know weights by their shapes."""
        self.shells = [nn.Parameter(weight) for weight in weights]
        self.config, self.taken = config, 0
        self.optimizer = build_optimizer([self.shells], config)

    def __call__(self, weights: Weights, gradient: Weights) -> None:
        """Turn weights into the next ones, in place."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate.at(self.taken)
        for shell, weight, part in zip(self.shells, weights, gradient, strict=True):
            shell.data, shell.grad = weight, part
        self.optimizer.step()
        self.taken += 1
        for shell in self.shells:
            shell.grad = None
