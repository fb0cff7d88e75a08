"""The signatures that each kind of operation may have on one axis of a mesh.

    product X W     S(0) B -> S(0)         by batch (or by rows of a text)
                    B S(1) -> S(last)      by output columns
                    S(last) S(0) -> P      by inputs
                    P B -> P               of summands;  B B -> B
    convolution     the same, W of (outputs, inputs, window): columns S(0), inputs S(1)
    table           B S(0) -> P            by rows: tokens of other devices give zeros
                    B S(1) -> S(last)      by columns
    attention       by batch, by heads
    loss            S(0) -> P, S(last) -> P (by vocabulary: three sums a row are all-reduced)
    functions       what they had, but no summands: f(a + b) is not f(a) + f(b)
    sums, views     what all had, summands too

A weight is called by the shape that its docstring has: (inputs, outputs) of a product, (outputs,
inputs, ...) of a convolution, (rows, width) of a table. A bias goes with its outputs; where these
are summands the first device of the axis adds it.

Source: OneFlow (arXiv:2110.15032), table 1; Shoeybi et al. (arXiv:1909.08053) for attention and
the loss; Krizhevsky (arXiv:1404.5997) for products by columns. Leaves out: images by rows and
columns (halos), a recurrent layer's gates, which go by batch or whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from parsim.layout.mesh import B, P, S
from parsim.layout.signature import BATCH, SUMMANDS, WHOLE, Inside, Signature, alike
from parsim.model.graph import images, pointwise, sequences, texts
from parsim.model.graph.operation import IMAGE, TEXT, Operation, Shape

Shapes = tuple[Shape, ...]
Maker = Callable[[Operation, Shapes, Shape], Iterator[Signature]]


def signatures(operation: Operation, inputs: Shapes, output: Shape) -> tuple[Signature, ...]:
    """All that an operation may have on an axis, whatever its size; that of no split at all last.

    Args:
        operation: which.
        inputs: shapes of a sample's inputs.
        output: shape of a sample's output.
    """
    made = MAKERS[type(operation)](operation, inputs, output)
    return (*made, replace(WHOLE, inputs=(B,) * len(inputs)))


def local_operation(
    operation: Operation, on_axes: tuple[Signature, ...], sizes: tuple[int, ...]
) -> Operation:
    """The operation on one device: sizes divided by each axis that divides them.

    Raises:
        ValueError: an axis does not divide one of them.
    """
    for signature, n in zip(on_axes, sizes, strict=True):
        for name in signature.divided:
            size, rest = divmod(int(getattr(operation, name)), n)
            if rest:
                raise ValueError(f"{n} does not divide {name}={getattr(operation, name)}")
            operation = replace(operation, **{name: size})
    return operation


def _convolution(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield BATCH
    groups = getattr(op, "groups", 1)
    if groups == 1:
        yield Signature(
            word="columns", inputs=(B,), weight=S(0), output=S(1), divided=("out_channels",)
        )
        yield Signature(word="inputs", inputs=(S(1),), weight=S(1), output=P)
    else:
        divided = ("out_channels", "groups")
        yield Signature(word="channels", inputs=(S(1),), weight=S(0), output=S(1), divided=divided)
    yield SUMMANDS


def _dense(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield BATCH
    last = len(inputs[0])
    if last == TEXT:
        yield alike("rows", S(1), 1)
    yield Signature(
        word="columns", inputs=(B,), weight=S(1), output=S(last), divided=("out_features",)
    )
    yield Signature(word="inputs", inputs=(S(last),), weight=S(0), output=P)
    yield SUMMANDS


def _batch_norm(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    inside: Inside = "statistics" if type(op) is images.BatchNorm2d else ""
    yield replace(BATCH, inside=inside)
    yield Signature(word="channels", inputs=(S(1),), weight=S(0), output=S(1))


def _layer_norm(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield BATCH
    for dim in range(1, len(output)):
        yield alike("rows", S(dim), 1)


def _function(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    """A function of each value: any split, no summands."""
    yield replace(BATCH, inputs=(S(0),) * len(inputs))
    for dim in range(1, len(output) + 1):
        yield alike("dim", S(dim), len(inputs))


def _sum(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield from _function(op, inputs, output)
    yield alike("summands", P, len(inputs))


def _product(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    """Two tensors multiplied: linear in either, so that one of them may be of summands."""
    if inputs[0] == inputs[1]:
        yield from _function(op, inputs, output)
    else:  # factors of channels
        yield alike("batch", S(0), 2)
        yield alike("channels", S(1), 2)
        yield from (Signature(word="dim", inputs=(S(dim), B), output=S(dim)) for dim in (2, 3))
    yield Signature(word="summands", inputs=(P, B), output=P)
    yield Signature(word="summands", inputs=(B, P), output=P)


def _window(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    """Windows of an image: every image and channel by itself."""
    yield BATCH
    yield alike("channels", S(1), 1)
    if type(op) is not images.MaxPool2d:
        yield SUMMANDS


def _concat(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    joined = 1 if len(output) >= IMAGE else len(output)
    yield alike("batch", S(0), len(inputs))
    for dim in range(1, len(output) + 1):
        if dim != joined:
            yield alike("dim", S(dim), len(inputs))
    yield alike("summands", P, len(inputs))


def _flatten(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    """The first dimension's parts stay together in the row."""
    yield BATCH
    yield Signature(word="dim", inputs=(S(1),), output=S(1))
    yield SUMMANDS


def _first_row(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield BATCH
    yield Signature(word="dim", inputs=(S(len(inputs[0])),), output=S(1))
    yield SUMMANDS


def _table(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield BATCH
    if not getattr(op, "positions", 0):
        yield Signature(word="rows", inputs=(S(1),), output=S(1))
    yield Signature(
        word="table rows", inputs=(B,), weight=S(0), output=P, divided=("num_embeddings",)
    )
    yield Signature(
        word="columns", inputs=(B,), weight=S(1), output=S(2), divided=("embedding_dim",)
    )


def _patches(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield BATCH
    yield Signature(word="columns", inputs=(S(1),), weight=S(1), output=S(2))


def _attention(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    count = len(inputs)
    yield alike("batch", S(0), count)
    weight = S(1) if getattr(op, "buckets", 0) else B
    heads = S(1) if count == 3 else S(2)
    yield Signature(
        word="heads", inputs=(heads,) * count, weight=weight, output=heads, divided=("heads",)
    )


def _by_batch(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield alike("batch", S(0), len(inputs))


def _loss(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    last = len(inputs[0])
    yield Signature(word="batch", inputs=(S(0),), output=P)
    if last == TEXT:
        yield Signature(word="rows", inputs=(S(1),), output=P)
    yield Signature(word="vocabulary", inputs=(S(last),), output=P, inside="softmax")


def _mean(op: Operation, inputs: Shapes, output: Shape) -> Iterator[Signature]:
    yield alike("summands", P, len(inputs))


MAKERS: Mapping[type[Operation], Maker] = {
    images.Conv2d: _convolution,
    images.BatchNorm2d: _batch_norm,
    images.InstanceNorm2d: _batch_norm,
    images.LocalResponseNorm: _by_batch,
    images.MaxPool2d: _window,
    images.AvgPool2d: _window,
    images.AdaptiveAvgPool2d: _window,
    images.Crop: _window,
    images.Upsample: _window,
    images.Pad: _window,
    pointwise.Relu: _function,
    pointwise.Sigmoid: _function,
    pointwise.Pointwise: _function,
    pointwise.Multiply: _product,
    pointwise.Dropout: _function,
    pointwise.Add: _sum,
    pointwise.Scale: _product,
    pointwise.Concat: _concat,
    pointwise.Flatten: _flatten,
    pointwise.View: _by_batch,
    pointwise.Copy: _by_batch,
    texts.Dense: _dense,
    texts.LayerNorm: _layer_norm,
    texts.Gelu: _function,
    texts.Embedding: _table,
    texts.Patches: _patches,
    texts.FirstRow: _first_row,
    sequences.SelfAttention: _attention,
    sequences.AdditiveAttention: _by_batch,
    sequences.Lstm: _by_batch,
    texts.Measured: _by_batch,
    texts.CrossEntropy: _loss,
    texts.MeanLoss: _mean,
}
"""Who lists the signatures of each operation."""


def listed(options: tuple[Signature, ...]) -> str:
    """Signatures in a message, each as input x weight -> output."""
    return "; ".join(dict.fromkeys(str(option) for option in options))
