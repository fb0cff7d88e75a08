"""Sizes of one sample of a tensor, wherever the batch stands in it.

Attention turns (batch, tokens, width) into (tokens, batch, width): which dimension is the batch's
is seen from a second graph of the same module, whose batch is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from torch import Tensor, fx

from parsim.model.graph.operation import Shape


def same_nodes(first: fx.GraphModule, second: fx.GraphModule) -> bool:
    """Whether two graphs are the same operations in the same order."""
    nodes = [[(n.name, str(n.target)) for n in module.graph.nodes] for module in (first, second)]
    return nodes[0] == nodes[1]


def shapes_of(module: fx.GraphModule) -> dict[str, Shape]:
    """Shapes of all tensors of an exported graph, by the node that makes them."""
    values = ((n.name, n.meta.get("val")) for n in module.graph.nodes)
    return {name: tuple(value.shape) for name, value in values if isinstance(value, Tensor)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A batch's size, and what is known of the other one: its size and its tensors' shapes."""

    batch: int
    other: int = 0
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def position(self, name: str, tensor: Tensor) -> int | None:
        """The dimension that is a multiple of the batch; None: there is none, or several."""
        shape = tuple(tensor.shape)
        there = self.shapes.get(name)
        if there is None or len(there) != len(shape):
            return 0 if len(shape) > 1 and shape[0] == self.batch else None
        differ = [at for at, size in enumerate(shape) if size != there[at]]
        if len(differ) != 1 or shape[differ[0]] % self.batch:
            return None
        (at,) = differ
        return at if shape[at] * self.other == there[at] * self.batch else None

    def sample(self, name: str, tensor: Tensor) -> Shape:
        """Sizes of a sample: without the batch, or all its values in a row."""
        at = self.position(name, tensor)
        if at is None:
            return (max(tensor.numel() // self.batch, 1),)
        each = tensor.shape[at] // self.batch
        sizes = (*tensor.shape[:at], *((each,) if each > 1 else ()), *tensor.shape[at + 1 :])
        return tuple(map(int, sizes)) or (prod(sizes),)

    def leads(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor has the batch alone in its first dimension, and something behind it."""
        first = tensor.dim() > 1 and tensor.shape[0] == self.batch
        return bool(first and self.position(name, tensor) == 0)

    def has_rows(self, name: str, tensor: Tensor) -> bool:
        """Whether the batch stands before the last dimension, so that a sample has whole rows."""
        at = self.position(name, tensor)
        return at is not None and at < tensor.dim() - 1
