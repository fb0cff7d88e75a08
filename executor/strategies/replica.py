"""One worker's whole model, its weights and gradients as flat vectors, and its optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from executor.model.loss import loss as cross_entropy
from executor.model.module import build_model
from executor.model.stage import Stage
from parsim.model.transformer import TransformerSpec

Batch = tuple[Tensor, Tensor]
MOMENTUM = 0.9
"""The momentum of sgd_momentum is that of DDP's trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The optimizer of a worker or a server; AdamW's defaults are those of GPT-3's training."""

    name: Literal["adamw", "sgd", "sgd_momentum"] = "adamw"
    learning_rate: float = 6e-4
    weight_decay: float = 0.1

    def build(self, values: nn.Parameter) -> torch.optim.Optimizer:
        """The optimizer of a flat vector: both treat each value apart from all others."""
        if self.name != "adamw":
            momentum = MOMENTUM if self.name == "sgd_momentum" else 0.0
            return torch.optim.SGD(
                [values],
                lr=self.learning_rate,
                momentum=momentum,
                weight_decay=self.weight_decay,
            )
        return torch.optim.AdamW(
            [values],
            lr=self.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=self.weight_decay,
        )


class FlatOptimizer:
    """Weights as one vector that an optimizer updates; a server's share, or a worker's whole."""

    def __init__(self, weights: Tensor, recipe: Recipe) -> None:
        self.values = nn.Parameter(weights.detach().clone())
        self._optimizer = recipe.build(self.values)

    def apply(self, gradient: Tensor) -> None:
        """Take a step with a gradient."""
        self.values.grad = gradient
        self._optimizer.step()
        self.values.grad = None

    def set(self, weights: Tensor) -> None:
        """Replace the weights and keep the optimizer's states."""
        with torch.no_grad():
            self.values.copy_(weights)

    @property
    def weights(self) -> Tensor:
        """A copy of the weights."""
        return self.values.detach().clone()


class Replica:
    """A model in fp32 on this process; tied tables count once."""

    def __init__(self, spec: TransformerSpec, *, seed: int, device: torch.device) -> None:
        self.model: Stage = build_model(spec, device=device, seed=seed)
        self._parameters = list(self.model.parameters())

    @property
    def weights(self) -> Tensor:
        """A copy of all weights in one vector."""
        flat: Tensor = nn.utils.parameters_to_vector(self._parameters)
        return flat.detach().clone()

    def load(self, weights: Tensor) -> None:
        """Set all weights."""
        with torch.no_grad():
            nn.utils.vector_to_parameters(weights, self._parameters)

    def gradient(self, batch: Batch, microbatches: int = 1) -> tuple[float, Tensor]:
        """Mean loss of a batch, and its gradient in one vector; micro-batches weigh alike."""
        for parameter in self._parameters:
            parameter.grad = None
        total = 0.0
        tokens, targets = batch
        pairs = zip(tokens.chunk(microbatches), targets.chunk(microbatches), strict=True)
        for inputs, wanted in pairs:
            loss = cross_entropy(self.model(inputs), wanted) / microbatches
            loss.backward()
            total += float(loss.detach())
        return total, torch.cat(
            [
                torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                for p in self._parameters
            ]
        )
