"""Operations without weights: functions of each value, and what joins tensors or views them.

Traffic as in `parsim/model/graph/images.py`: values that eager kernels must read and write.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from parsim.errors import ModelError, alternatives, shown
from parsim.model.graph.operation import Kept, Operation, OperationContext, Shape, image_of, moving
from parsim.model.operators import Operator

FUNCTIONS = (
    *("silu", "tanh", "hardswish", "hardsigmoid", "hardtanh", "relu6", "mish"),
    *("elu", "selu", "celu", "softplus", "softsign", "logsigmoid", "tanhshrink"),
)
"""Functions of one value that a model file may name, as `torch.nn.functional` calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise(Operation):
    """A function of each value, with its usual constants; keeps its input for backward."""

    function: str

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def __post_init__(self) -> None:
        """Check the function.

        Raises:
            ModelError: parsim does not know it.
        """
        if self.function not in FUNCTIONS:
            known = alternatives(self.function, FUNCTIONS)
            raise ModelError(f"function '{shown(self.function)}' is unknown{known}")

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads and writes; backward reads the input and the gradient, writes one."""
        return (moving(self.function, at.size_out, 2, 3, kept=at.kept),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiply(Operation):
    """The product of two tensors, value by value; keeps both for backward."""

    arity: ClassVar[int | None] = 2
    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """That of both inputs."""
        if inputs[0] != inputs[1]:
            raise ModelError(
                f"tensors of one shape can be multiplied, got {inputs[0]}, {inputs[1]}"
            )
        return inputs[0]

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads both and writes one; either gradient reads two and writes one."""
        return (moving("multiply", at.size_out, 3, 6, kept=at.kept, launches=(1, 2)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relu(Operation):
    """max(x, 0), or with a `slope` below 0: reads and writes; backward reads 2, writes 1.

    In place it overwrites its input, and keeps its output either way (LeakyReLU out of place its
    input, which is as large).
    """

    in_place: bool = True
    slope: float = 0.0

    keeps: ClassVar[tuple[Kept, ...]] = ("output",)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """2 values forward, 3 backward."""
        return (moving("relu", at.size_out, 2, 3, kept=at.kept),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmoid(Relu):
    """1 / (1 + exp(-x)); keeps its output."""

    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout(Operation):
    """Some values, or with `channels` whole images of a channel, become zero; keeps a mask."""

    p: float = 0.5
    channels: bool = False

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads and writes, and a byte of mask for each value, or for each channel."""
        mask = at.output[0] / at.size_out if self.channels else 1.0
        return (moving("dropout", at.size_out, 2, 2, mask=mask),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Operation):
    """Elementwise sum: reads both, writes one; its gradient is the output's, handed on."""

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """That of all inputs."""
        if len(set(inputs)) != 1:
            raise ModelError(f"tensors of one shape can be added, got {_listed(inputs)}")
        return inputs[0]

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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
        """It is that of the image."""
        channels, *_ = image_of(inputs[0], "scale")
        if inputs[1] != (channels, 1, 1):
            raise ModelError(f"scale needs ({channels}, 1, 1) factors, got {inputs[1]}")
        return inputs[0]

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """In and out; backward its parts are views, which the next operation copies."""
        return (moving("concat", at.size_out, 2, 2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten(Operation):
    """All values of a sample in one row; nothing moves."""

    view: ClassVar[bool] = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """All values in one dimension."""
        return (prod(inputs[0]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Operation):
    """A tensor's memory in another shape or order, or a part of it; nothing moves."""

    output: tuple[int, ...]

    view: ClassVar[bool] = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The shape that it says."""
        return self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Operation):
    """A tensor in another shape or order, for which its values are moved."""

    output: tuple[int, ...]

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The shape that it says."""
        return self.output

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads and writes every value, forward and backward."""
        return (moving("copy", at.size_out, 2, 2),)


def _joined_axis(shape: Shape) -> int:
    return len(shape) - 1 if len(shape) < 3 else 0


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)
