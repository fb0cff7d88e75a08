"""One worker's whole model, its weights and gradients as flat vectors, and its optimizer."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import torch
from torch import Tensor, nn

from executor.model.first_values import Values
from executor.model.loss import Batch, cross_entropy
from executor.model.module import build_model
from executor.model.stage import Stage, answers, average_balance
from executor.parallel.gradients.layout import trainable
from executor.parallel.precision import compute_fp32_as
from executor.training.norm import clip_factor
from executor.training.update_rule import OptimizerConfig, build_optimizer
from parsim.model.reader import Description


class FlatOptimizer:
    """An optimizer that updates a vector of weights in place: a server's share, a worker's whole.

    Its optimizer and rates are those of the trainer; every optimizer treats each value apart from
    all others, so that a share needs no others but for the norm that gradients are clipped to.
    With a replica's `flat` the model has the new weights as soon as they are made.
    """

    def __init__(self, weights: Tensor, config: OptimizerConfig) -> None:
        self.values = nn.Parameter(weights.detach())
        self._config = config
        self._optimizer = build_optimizer([[self.values]], config)

    def apply(self, gradient: Tensor, step: int, norm: Tensor | None = None) -> float:
        """Take the step of that number with a gradient, which is clipped in place.

        The `norm` is that of the whole gradient, where this is a share of it.

        Returns:
            The norm before clipping.
        """
        norm = torch.linalg.vector_norm(gradient) if norm is None else norm
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.rate.at(step)
        self.values.grad = clip(gradient, self._config.clip, norm)
        self._optimizer.step()
        self.values.grad = None
        return float(norm)

    @property
    def flat(self) -> Tensor:
        """The weights themselves; who writes to them keeps the optimizer's states."""
        return self.values.detach()

    @property
    def weights(self) -> Tensor:
        """A copy of the weights."""
        return self.flat.clone()


def clip(gradient: Tensor, largest: float, norm: Tensor) -> Tensor:
    """Scale a gradient of that norm in place down to the largest norm; 0 leaves it as it is."""
    return gradient.mul_(clip_factor(norm, largest)) if largest else gradient


class FlatReplica:
    """A model on this process, or of a graph the nodes `only`; tied tables count once.

    Its parameters are views of one vector and its gradients of another, so that neither is put
    together anew to be sent. What no gradient trains is in neither: no optimizer may decay it.
    """

    def __init__(
        self,
        spec: Description,
        *,
        seed: int,
        device: torch.device,
        values: Values | None = None,
        only: Collection[str] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        compute_fp32_as("fp32")  # the one precision of strategies
        self.spec = spec
        self.model: Stage = build_model(
            spec, device=device, seed=seed, values=values, only=only, dtype=dtype
        )
        parameters = list(trainable(self.model.named_parameters()).values())
        parts = [parameter.detach().flatten() for parameter in parameters]
        self._flat = torch.cat(parts) if parts else torch.zeros(0, device=device, dtype=dtype)
        self._gradient = torch.zeros_like(self._flat)
        sizes = [parameter.numel() for parameter in parameters]
        views = zip(parameters, self._flat.split(sizes), self._gradient.split(sizes), strict=True)
        self._gradients: dict[nn.Parameter, Tensor] = {}
        for parameter, first, gradient in views:
            parameter.data = first.view(parameter.shape)
            parameter.grad = self._gradients[parameter] = gradient.view(parameter.shape)
            parameter.register_post_accumulate_grad_hook(partial(_arrived, parameter.grad))

    @property
    def flat(self) -> Tensor:
        """All trained weights in one vector: who writes to it changes the model."""
        return self._flat

    @property
    def weights(self) -> Tensor:
        """A copy of all trained weights in one vector."""
        return self._flat.clone()

    def load(self, weights: Tensor) -> None:
        """Set all trained weights."""
        self._flat.copy_(weights)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of logits."""
        return cross_entropy(logits, targets, words=answers(self.spec))

    def gradient(self, batch: Batch, microbatches: int = 1) -> tuple[float, Tensor]:
        """Mean loss of a batch, and its gradient in one vector; micro-batches weigh alike.

        The vector is this replica's own, which the next gradient overwrites: what arrives first is
        copied there, 8 bytes a parameter; zeroed and added to, it would be 16.
        """
        average_balance(self.model, microbatches)
        for parameter in self._gradients:
            parameter.grad = None
        # added up where it is: to read it stops a GPU's host, so that is done once a step
        total = torch.zeros((), dtype=torch.float64, device=self._flat.device)
        tokens, targets = batch
        pairs = zip(tokens.chunk(microbatches), targets.chunk(microbatches), strict=True)
        for inputs, wanted in pairs:
            loss = self.loss(self.model(inputs), wanted) / microbatches
            loss.backward()
            total += loss.detach()
        for parameter, gradient in self._gradients.items():
            if parameter.grad is None:  # nothing arrived
                parameter.grad = gradient.zero_()
        return float(total), self.summed

    def forget(self) -> None:
        """Forget the gradients of the last step."""
        self._gradient.zero_()

    @property
    def summed(self) -> Tensor:
        """The gradients that backwards have summed so far, in one vector of this replica."""
        return self._gradient

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat vector as parts by the names of the parameters, on the CPU."""
        names = trainable(self.model.named_parameters())
        parts = flat.split([parameter.numel() for parameter in names.values()])
        pairs = zip(names.items(), parts, strict=True)
        return {name: part.view(parameter.shape).cpu() for (name, parameter), part in pairs}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def evaluate(self, batch: Batch) -> float:
        """Mean loss of a batch, without dropout."""
        self.model.eval()
        value = float(self.loss(self.model(batch[0]), batch[1]))
        self.model.train()
        return value


def _arrived(kept: Tensor, parameter: nn.Parameter) -> None:
    """Put a parameter's gradient where it belongs, unless it was added there.

    No method: parameters that know their replica would live on until garbage is looked for.
    """
    if parameter.grad is not kept:
        parameter.grad = kept.copy_(parameter.grad)
