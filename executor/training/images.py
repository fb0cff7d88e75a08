"""Images that a network can learn from, the same whatever the parallelism.

A class has a pattern of its own; an image is its class's pattern under noise. Both depend on the
seed alone, a batch on the seed and the step: every replica makes the whole batch and takes its
rows, as with text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from parsim.model.graph.losses import classes
from parsim.model.graph.record import Graph

NOISE = 1.0
"""Standard deviation of the noise over that of the patterns."""

MOST_PATTERNS = 64
"""Patterns in memory: classes beyond share them, and differ in sign and order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Synthetic images for a graph: `shape` of one, and how many `classes` each task tells apart.

    The class of an image is that of the task with the most; others tell apart what is left of it.
    """

    shape: tuple[int, ...]
    classes: tuple[int, ...]

    @classmethod
    def of(cls, graph: Graph) -> Images:
        """Images of the shape that enters a graph, of the classes its losses choose among."""
        return cls(shape=graph.input_shape, classes=classes(graph))

    def batches(
        self, *, seed: int, global_batch_size: int, first_step: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Return an endless iterator over (images (b, c, h, w), classes (b, tasks))."""
        patterns = self._patterns(seed)
        return (self._batch(patterns, seed, step, global_batch_size) for step in count(first_step))

    def _patterns(self, seed: int) -> Tensor:
        draw = np.random.default_rng((seed, 0))
        size = (min(max(self.classes), MOST_PATTERNS), *self.shape)
        return torch.from_numpy(draw.standard_normal(size, dtype=np.float32))

    def _batch(self, patterns: Tensor, seed: int, step: int, size: int) -> tuple[Tensor, Tensor]:
        draw = np.random.default_rng((seed, 1, step))
        drawn = torch.from_numpy(draw.integers(0, max(self.classes), size=size))
        noise = torch.from_numpy(draw.standard_normal((size, *self.shape), dtype=np.float32))
        signs = 1.0 - 2.0 * (drawn // len(patterns) % 2)
        images = patterns[drawn % len(patterns)] * signs.view(-1, *[1] * len(self.shape)).float()
        return images + NOISE * noise, drawn[:, None] % torch.tensor(self.classes)
