"""Operations in which the rows of a text meet: attention and recurrent layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parsim.errors import ModelError
from parsim.model.graph.operation import (
    IMAGE,
    TEXT,
    Kept,
    Operation,
    OperationContext,
    Shape,
    moving,
)
from parsim.model.networks import Recurrent
from parsim.model.operators import Attention, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAttention(Operation):
    """Attention over rows that hold queries, keys and values side by side.

    With a second input the first holds queries, and the second keys and values of another text.
    Three inputs are queries, keys and values by head, each (heads, tokens, width of a head).
    `buckets` of relative positions add a learned number for each head to the scores.
    """

    heads: int
    causal: bool = False
    buckets: int = 0

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """A third of the width, or the queries' own."""
        if len(inputs) > 3:
            raise ModelError(f"attention takes one to three inputs, got {len(inputs)}")
        if len(inputs) == 3:
            return self._by_head(inputs)
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

    def _by_head(self, inputs: tuple[Shape, ...]) -> Shape:
        """The shape of the queries, which keys and values must fit."""
        queries, keys, values = inputs
        fits = len(queries) == len(keys) == IMAGE and queries == (self.heads, *queries[1:])
        if not fits or keys != values or keys[::2] != queries[::2]:
            raise ModelError(
                f"attention of heads={self.heads} takes queries, keys and values of one number and "
                f"width of heads, got {inputs}"
            )
        return queries

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """The fused core, over as many keys as the text has rows that queries look at."""
        tokens, width = at.output[-2], at.size_out // at.output[-2]
        keys = at.inputs[-1][-2]
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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
