"""Operations on each row of a text (or patch of an image), and the loss at a graph's end."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from parsim.errors import ModelError
from parsim.model.graph.operation import Kept, Operation, OperationContext, Shape, moving
from parsim.model.operators import Linear, Lookup, Loss, Operator, Split, Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(Operation):
    """A matrix product of every row with one weight (`torch.nn.Linear`)."""

    out_features: int
    bias: bool = True
    owns_weight: bool = True

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The last dimension becomes `out_features`."""
        return (*inputs[0][:-1], self.out_features)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """A matrix product of all rows."""
        return (
            Linear(
                name="linear",
                tokens=prod(at.inputs[0][:-1]),
                inputs=at.inputs[0][-1],
                outputs=self.out_features,
                split=Split.NONE,
                bias=self.bias,
                owns_weight=self.owns_weight,
                keeps_input=at.kept > 0,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm(Operation):
    """Normalisation of each row: reads x, writes y; backward reads dy and x twice, writes dx."""

    bias: bool = True

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads 1 and writes 1 value forward, reads 3 and writes 1 backward."""
        parameters = at.output[-1] * (1 + self.bias)
        return (
            moving(
                "layer_norm",
                at.size_out,
                2,
                4,
                kept=at.kept,
                parameters=parameters,
                launches=(1, 2),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gelu(Operation):
    """x Phi(x): keeps its input."""

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads and writes; backward reads 2, writes 1."""
        return (moving("gelu", at.size_out, 2, 3, kept=at.kept),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding(Operation):
    """A row of a table for each token, plus a row of a second one for its place."""

    num_embeddings: int
    embedding_dim: int
    positions: int = 0
    owns_weight: bool = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Tokens become rows."""
        if len(inputs[0]) != 1:
            raise ModelError(f"embedding needs tokens (n,), got {inputs[0]}")
        return (*inputs[0], self.embedding_dim)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """A lookup of each token."""
        return (
            Lookup(
                tokens=at.inputs[0][0],
                vocab_size=self.num_embeddings,
                width=self.embedding_dim,
                positions=self.positions,
                owns_weight=self.owns_weight,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches(Operation):
    """An image's pixels as rows, behind a learned one, each with a learned place added (ViT)."""

    class_token: bool = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(rows x columns + 1, channels)."""
        channels, rows, columns = inputs[0]
        return rows * columns + self.class_token, channels

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Two copies and a sum forward; backward the copy, and the places' gradient."""
        parameters = at.size_out + at.output[1] * self.class_token
        return (moving("patches", at.size_out, 7, 4, parameters=parameters, launches=(3, 3)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRow(Operation):
    """The first row of a text; a view."""

    view: ClassVar[bool] = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The row is left."""
        return (inputs[0][-1],)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Operation):
    """A module known by its measured seconds, its output and its parameters alone.

    A call on n samples takes `forward_call_s` + n `forward_s`, and backward alike.
    """

    output: tuple[int, ...]
    forward_s: float
    backward_s: float
    forward_call_s: float = 0.0
    backward_call_s: float = 0.0
    parameters: int = 0
    kept_values: int = 0

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The shape that was measured."""
        return self.output

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """What was measured."""
        return (
            Timed(
                name="measured",
                forward=self.forward_s,
                backward=self.backward_s,
                forward_call=self.forward_call_s,
                backward_call=self.backward_call_s,
                saved=self.kept_values,
                repeated_parameters=self.parameters,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy(Operation):
    """Softmax cross-entropy of the last dimension's values: the loss at a graph's end."""

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """A loss is one number."""
        return (1,)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """The loss over the classes."""
        return (Loss(tokens=prod(at.inputs[0][:-1]), vocab_size=at.inputs[0][-1]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLoss(Operation):
    """The mean of several losses, which count alike: the loss of a model of several tasks."""

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """One number of several."""
        if any(shape != (1,) for shape in inputs):
            raise ModelError(f"mean_loss takes losses of one number, got {inputs}")
        return (1,)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads them and writes one; backward the other way round."""
        moved = len(at.inputs) + 1
        return (moving("mean", 1, moved, moved),)
