"""Layers of a stage that backward computes again, where a plan says of how many."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from executor.model.graph.stage import GraphLayer
from parsim.plan import Recompute


def recompute_first(layers: Iterable[nn.Module], first: int, others: Recompute) -> None:
    """Let the first layers be computed again as a whole, and the others as `others` says."""
    for number, layer in enumerate(layers):
        mode = Recompute.FULL if number < first else others
        if isinstance(layer, GraphLayer):  # which has no attention of its own to repeat
            layer.recompute = mode is Recompute.FULL
            continue
        layer.recompute = layer.attention.recompute = mode
