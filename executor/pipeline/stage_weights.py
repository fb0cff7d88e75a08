"""The versions of a stage's weights, of which the module has one at a time.

An update works on a copy where a backward to come needs the weights before it, and binds the
parameters to the copy; a graph that is still to go backward keeps the old ones. Updates in place
would either be refused by autograd or, through `.data`, change the gradient without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from executor.pipeline.gradient_sums import GradientSums
from executor.pipeline.stage_groups import Update, Weights
from executor.torch_internals.distributed import stored_tensor


class StageWeights:
    """A module's weights: those that backwards to come use, by version, and the newest."""

    def __init__(self, module: nn.Module, sums: torch.dtype = torch.float32) -> None:
        """Take over a module's parameters as version 0; gradients add up in a dtype."""
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._stored = [stored_tensor(parameter) for parameter in self.parameters]
        self._versions: dict[int, Weights] = {0: [stored.data for stored in self._stored]}
        self._newest = 0
        self._gradients = GradientSums(self.parameters, sums)

    @property
    def newest(self) -> Weights:
        """The newest weights."""
        return self._versions[self._newest]

    @property
    def count(self) -> int:
        """Versions that are there at once."""
        return len(self._versions)

    def restart(self) -> None:
        """Let the newest weights be version 0, and forget all others."""
        self._versions, self._newest = {0: self.newest}, 0

    def move(self) -> None:
        """Put the newest weights somewhere else in memory."""
        self._versions[self._newest] = [weight.clone() for weight in self.newest]
        self._bind(self._newest)

    @contextmanager
    def bound(self, version: int) -> Iterator[None]:
        """Give the module the weights of a version, and then the newest again."""
        self._bind(version)
        try:
            yield
        finally:
            self._bind(self._newest)

    def make(self, version: int, update: Update, gradient: Weights, later: Collection[int]) -> None:
        """Make a version of the newest with a gradient; keep those that are used `later`."""
        last = self._newest
        self._versions = {v: w for v, w in self._versions.items() if v in later or v == last}
        kept = last in later
        base = self._versions[last] if kept else self._versions.pop(last)
        weights = [weight.clone() for weight in base] if kept else base
        update(weights, gradient)
        self._versions[version], self._newest = weights, version
        self._bind(version)

    def take_gradient(self) -> Weights:
        """The gradient that backwards have added up, and nothing of it left."""
        return self._gradients.take()

    def _bind(self, version: int) -> None:
        for stored, weight in zip(self._stored, self._versions[version], strict=True):
            stored.data = weight
