"""What every operation of a graph tells: the shape it makes, and the operators it is priced by."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from parsim.errors import ModelError
from parsim.model.operators import Elementwise, Operator, Region

Shape = tuple[int, ...]
"""Sizes of one sample's tensor: (channels, rows, columns) of an image, (tokens, width)."""

Kept = Literal["input", "output"]

IMAGE, TEXT = 3, 2
"""Dimensions of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """Where an operation stands: shapes around it, and what it is the first to keep for backward.

    `kept` are values of its inputs or output that no operation before it keeps. `asks` says whether
    anything before it has parameters, so that the gradient of its inputs is needed.
    """

    inputs: tuple[Shape, ...]
    output: Shape
    kept: int
    asks: bool = True

    @property
    def size_in(self) -> int:
        """Values of all inputs of a sample."""
        return sum(map(prod, self.inputs))

    @property
    def size_out(self) -> int:
        """Values of a sample's output."""
        return prod(self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation; a subclass has its sizes as fields, which a model file names alike."""

    keeps: ClassVar[tuple[Kept, ...]] = ()
    arity: ClassVar[int | None] = 1
    """Tensors that it takes; None: two or more."""
    view: ClassVar[bool] = False
    """Whether the output is the input's memory, read as another shape or overwritten."""

    @property
    def kept(self) -> tuple[Kept, ...]:
        """Which of its tensors it keeps for backward."""
        return self.keeps

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The output's shape.

        Raises:
            ModelError: the inputs' shapes do not fit the operation.
        """
        return inputs[0]

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """What a layer is priced by."""
        return ()


def moving(  # noqa: PLR0913 - one number for each fact of a pass
    name: str,
    width: int,
    forward: float,
    backward: float,
    *,
    kept: int = 0,
    mask: float = 0.0,
    parameters: int = 0,
    statistics: int = 0,
    launches: tuple[int, int] = (1, 1),
) -> Elementwise:
    """A pass through memory: `forward` and `backward` values moved for each of `width` values."""
    return Elementwise(
        name=name,
        tokens=1,
        width=width,
        region=Region.SEQUENCE,
        forward=forward,
        backward=backward,
        saved=kept / width,
        mask=mask,
        launches=launches,
        repeated_parameters=parameters,
        statistics=statistics,
    )


def through(name: str, at: OperationContext) -> Elementwise:
    """A pass that reads its input and writes its output, and backward the other way round."""
    moved = 1.0 + at.size_out / at.size_in
    return moving(name, at.size_in, moved, moved, kept=at.kept)


def image_of(shape: Shape, operation: str) -> tuple[int, int, int]:
    """Channels, rows and columns.

    Raises:
        ModelError: the tensor is no image.
    """
    if len(shape) != IMAGE:
        raise ModelError(f"{operation} needs an image (channels, rows, columns), got {shape}")
    return shape[0], shape[1], shape[2]
