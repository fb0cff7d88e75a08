"""Functions of each value of a tensor, and products of two tensors.

Traffic as in `parsim/model/graph/images.py`: values that eager kernels must read and write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parsim.errors import ModelError, shown
from parsim.model.graph.operation import Kept, Operation, Setting, Shape, moving
from parsim.model.operators import Operator
from parsim.names import alternatives

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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Reads both and writes one; either gradient reads two and writes one."""
        return (moving("multiply", at.size_out, 3, 6, kept=at.kept, launches=(1, 2)),)
