"""Operations on rows of a text (or patches of an image), and the loss at a graph's end."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from parsim.errors import ModelError
from parsim.model.graph.operation import TEXT, Kept, Operation, Setting, Shape, moving
from parsim.model.networks import Recurrent
from parsim.model.operators import Attention, Linear, Lookup, Loss, Operator, Split, Timed


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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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
class SelfAttention(Operation):
    """Attention over rows that hold queries, keys and values side by side.

    With a second input the first holds queries, and the second keys and values of another text.
    `buckets` of relative positions add a learned number for each head to the scores.
    """

    heads: int
    causal: bool = False
    buckets: int = 0

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """A third of the width, or the queries' own."""
        if len(inputs) > 2:
            raise ModelError(f"attention takes one input or two, got {len(inputs)}")
        parts = 3 if len(inputs) == 1 else 1
        width = inputs[0][-1] // parts
        if inputs[0][-1] % parts or width % self.heads or len(inputs[0]) != TEXT:
            raise ModelError(
                f"attention with heads={self.heads} cannot divide rows of shape {inputs[0]}"
            )
        if parts == 1 and (len(inputs[1]) != TEXT or inputs[1][-1] != 2 * width):
            raise ModelError(
                f"attention of queries of shape {inputs[0]} needs keys and values side by side, "
                f"rows of width {2 * width}, got {inputs[1]}"
            )
        return inputs[0][0], width

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """The fused core, over as many keys as the text has rows that queries look at."""
        tokens, width = at.output
        keys = at.inputs[-1][0]
        core = Attention(
            tokens=tokens,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=width // self.heads,
            causal=self.causal,
            fused=True,
            dropout=False,
            keys=None if keys == tokens else keys,
        )
        if not self.buckets:
            return (core,)
        scores, parameters = tokens * keys * self.heads, self.buckets * self.heads
        return moving("bias", scores, 1, 1, parameters=parameters), core


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveAttention(Operation):
    """softmax(v tanh(q + k)) of queries, keys and values (Bahdanau et al. 2014).

    A value for each pair of tokens and each of the width is written and read, and kept.
    """

    arity: ClassVar[int | None] = 3

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """A row for each query, as wide as a value."""
        if any(len(shape) != TEXT for shape in inputs) or inputs[0][-1] != inputs[1][-1]:
            raise ModelError(f"attention needs queries and keys of one width, got {inputs}")
        return inputs[0][0], inputs[2][-1]

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Three passes forward (sum, tanh, product with v), five backward."""
        (queries, width), (keys, _) = at.inputs[:2]
        pairs = queries * keys * width
        return (moving("attention", pairs, 5, 8, kept=pairs, parameters=width, launches=(5, 8)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lstm(Operation):
    """One recurrent layer, in one direction or in two whose outputs stand side by side."""

    hidden_size: int
    bidirectional: bool = False
    gates: int = 4

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The width becomes the hidden one, twice it in two directions."""
        if len(inputs[0]) != TEXT:
            raise ModelError(f"lstm needs rows (tokens, width), got {inputs[0]}")
        return inputs[0][0], self.hidden_size * (1 + self.bidirectional)

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """A recurrent layer over all tokens."""
        tokens, width = at.inputs[0]
        return (
            Recurrent(
                name="lstm" if self.gates == 4 else "gru",
                tokens=tokens,
                inputs=width,
                hidden=self.hidden_size,
                gates=self.gates,
                directions=1 + self.bidirectional,
                keeps_input=at.kept > 0,
            ),
        )


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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
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

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Reads them and writes one; backward the other way round."""
        moved = len(at.inputs) + 1
        return (moving("mean", 1, moved, moved),)
