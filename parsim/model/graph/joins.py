"""Operations that join tensors or view them otherwise: sums, products by channel, concatenation."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from parsim.errors import ModelError
from parsim.model.graph.operation import (
    Kept,
    Operation,
    Setting,
    Shape,
    image_of,
    moving,
)
from parsim.model.operators import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Operation):
    """Elementwise sum: reads both, writes one; its gradient is the output's, handed on."""

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """That of all inputs."""
        if len(set(inputs)) != 1:
            raise ModelError(f"tensors of one shape can be added, got {_listed(inputs)}")
        return inputs[0]

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """One more read than inputs."""
        return (
            moving("add", at.size_out, len(at.inputs) + 1, 0, launches=(len(at.inputs) - 1, 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Operation):
    """An image times one factor for each channel, as squeeze-and-excitation has it; keeps both."""

    arity: ClassVar[int | None] = 2
    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The image's."""
        channels, *_ = image_of(inputs[0], "scale")
        if inputs[1] != (channels, 1, 1):
            raise ModelError(f"scale needs ({channels}, 1, 1) factors, got {inputs[1]}")
        return inputs[0]

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Reads, writes; backward reads x and dy, writes dx, and the factors' sum reads both."""
        return (moving("scale", at.size_out, 2, 6, kept=at.kept, launches=(1, 3)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concat(Operation):
    """Tensors side by side along their channels, or along the last dimension of texts."""

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """All channels together."""
        axis = _joined_axis(inputs[0])
        rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in inputs}
        if len(rest) != 1 or len({len(shape) for shape in inputs}) != 1:
            raise ModelError(f"tensors differ in more than their channels: {_listed(inputs)}")
        total = sum(shape[axis] for shape in inputs)
        return (*inputs[0][:axis], total, *inputs[0][axis + 1 :])

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """In and out; backward its parts are views, which the next operation copies."""
        return (moving("concat", at.size_out, 2, 2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten(Operation):
    """All values of a sample in one row; nothing moves."""

    view: ClassVar[bool] = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """One dimension."""
        return (prod(inputs[0]),)


def _joined_axis(shape: Shape) -> int:
    return len(shape) - 1 if len(shape) < 3 else 0


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)
