"""The parameters of each operation, and which of their dimensions follow the weight's.

    operation     weight              parameters (shape: dimension of the weight)
    conv2d        (outputs, inputs)   weight (K, C / g, R, S: 0, 1)   bias (K: 0)
    linear        (inputs, outputs)   weight (outputs, inputs: 1, 0)  bias (outputs: 1)
    norms         (channels)          weight, bias (C: 0)
    embedding     (rows, width)       token.weight (V, h: 0, 1)       places.weight (n, h: -, 1)
    patches       (rows, width)       token (1, 1, w: -, -, 1)        places (1, n, w: -, -, 1)
    attention     (buckets, heads)    places.weight (buckets, heads: -, 1)

Names and shapes are those of torch's modules, so that the executor finds its parameters here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from parsim.layout.mesh import B, NdSbp, S, Sbp
from parsim.layout.signature import Signature
from parsim.layout.signatures import Shapes
from parsim.model.graph import images, sequences, texts
from parsim.model.graph.operation import Operation, OperationContext, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A tensor of parameters; `follows` is for each dimension that of the weight, or None."""

    name: str
    shape: Shape
    follows: tuple[int | None, ...]

    @property
    def values(self) -> int:
        """How many values the tensor has."""
        return prod(self.shape)

    def laid(self, weight: Sbp) -> Sbp:
        """Its layout on an axis, from that of the weight."""
        if weight.splits and weight.dim in self.follows:
            return S(self.follows.index(weight.dim))
        return B


def laid_parameters(
    operation: Operation, inputs: Shapes, output: Shape, on_axes: tuple[Signature, ...]
) -> Iterator[tuple[Parameter, NdSbp]]:
    """The parameters of an operation with their layouts on a mesh."""
    for parameter in parameters(operation, inputs, output):
        yield parameter, tuple(parameter.laid(signature.weight) for signature in on_axes)


def parameters(operation: Operation, inputs: Shapes, output: Shape) -> Iterator[Parameter]:
    """The parameters that an operation owns."""
    if isinstance(operation, images.Conv2d):
        shape = (operation.out_channels, inputs[0][0] // operation.groups, *operation.kernel_size)
        yield Parameter(name="weight", shape=shape, follows=(0, 1, None, None))
        if operation.bias:
            yield Parameter(name="bias", shape=shape[:1], follows=(0,))
    elif isinstance(operation, texts.Dense):
        yield from _dense(operation, inputs[0][-1])
    elif isinstance(operation, images.BatchNorm2d):
        if operation.affine:
            yield from _norm(output[0], bias=True, follows=0)
    elif isinstance(operation, texts.LayerNorm):
        yield from _norm(output[-1], bias=operation.bias, follows=None)
    elif isinstance(operation, texts.Embedding):
        yield from _table(operation)
    else:
        yield from _others(operation, inputs, output)


def _dense(operation: texts.Dense, inputs: int) -> Iterator[Parameter]:
    if operation.owns_weight:
        yield Parameter(name="weight", shape=(operation.out_features, inputs), follows=(1, 0))
    if operation.bias:
        yield Parameter(name="bias", shape=(operation.out_features,), follows=(1,))


def _norm(size: int, *, bias: bool, follows: int | None) -> Iterator[Parameter]:
    for name in ("weight", "bias")[: 1 + bias]:
        yield Parameter(name=name, shape=(size,), follows=(follows,))


def _table(operation: texts.Embedding) -> Iterator[Parameter]:
    width = operation.embedding_dim
    if operation.owns_weight:
        yield Parameter(
            name="token.weight", shape=(operation.num_embeddings, width), follows=(0, 1)
        )
    if operation.positions:
        yield Parameter(name="places.weight", shape=(operation.positions, width), follows=(None, 1))


def _others(operation: Operation, inputs: Shapes, output: Shape) -> Iterator[Parameter]:
    if isinstance(operation, texts.Patches):
        if operation.class_token:
            yield Parameter(name="token", shape=(1, 1, output[1]), follows=(None, None, 1))
        yield Parameter(name="places", shape=(1, *output), follows=(None, None, 1))
    elif isinstance(operation, sequences.SelfAttention):
        if operation.buckets:
            shape = (operation.buckets, operation.heads)
            yield Parameter(name="places.weight", shape=shape, follows=(None, 1))
    else:
        size = counted(operation, inputs, output)
        if size:
            yield Parameter(name="", shape=(size,), follows=(None,))


def counted(operation: Operation, inputs: Shapes, output: Shape) -> int:
    """Parameters of the operators that an operation is priced by."""
    at = OperationContext(inputs=inputs, output=output, kept=0)
    operators = operation.operators(at)
    return sum(op.split_parameters + op.repeated_parameters for op in operators)
