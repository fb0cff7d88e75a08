"""Shapes in a trace: what an operator took, and the parameters whose gradients it added up."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parsim.errors import ModelError
from parsim.model.graph.operation import Shape
from parsim.model.graph.traces.events import Call
from parsim.model.graph.traces.passes import Layer

DIMENSIONS = "Input Dims"
ACCUMULATE = "torch::autograd::AccumulateGrad"
MOST_SIZE = 10**9
MOST_VALUES = 10**15
_DATA = {"aten::embedding": 1}
"""Operators whose first input is no data but a weight, and the number of the one that is."""


def taken(call: Call) -> list[Shape]:
    """Shapes of the tensors that an operator took, its data first."""
    given = call.top.details.get(DIMENSIONS)
    inputs = given if isinstance(given, list) else []
    first = _DATA.get(call.top.name, 0)
    return list(_tensors([*inputs[first:], *inputs[:first]]))


def batch_of(layers: list[Layer], given: Shape | None = None) -> Shape:
    """The shape of the batch: the given one, or that of what the first layer took.

    Raises:
        ModelError: no shapes were recorded.
    """
    if not any(DIMENSIONS in call.top.details for layer in layers for call in layer.forward):
        raise ModelError("has no shapes; record it with profile(..., record_shapes=True)")
    shapes = [given] if given else taken(layers[0].forward[0])
    if not shapes:
        raise ModelError(
            f"its first layer, {layers[0].forward[0].top.name}, took no tensor; say what the batch "
            "is: parsim profile TRACE --input BATCHxSIZES"
        )
    return shapes[0]


def sample_of(call: Call, batch: int) -> Shape:
    """What an operator took of a sample: the first tensor that has the batch, at best in front.

    Raises:
        ModelError: none of its tensors has it.
    """
    shapes = taken(call)
    for shape in shapes:
        if shape[0] == batch:
            return shape[1:] or (1,)
    for shape in shapes:
        if prod(shape) % batch == 0:
            return (prod(shape) // batch,)
    told = ", ".join("x".join(map(str, shape)) for shape in shapes) or "nothing"
    raise ModelError(
        f"{call.top.name} took {told}, in which a batch of {batch} is not; "
        "say what it is: parsim profile TRACE --input BATCHxSIZES"
    )


def parameters_of(layer: Layer) -> int:
    """Values of the parameters whose gradients a layer's backward added up."""
    sums = [event for call in layer.backward for event in call.events if event.name == ACCUMULATE]
    shapes = [next(_tensors(event.details.get(DIMENSIONS)), (0,)) for event in sums]
    return sum(prod(shape) for shape in shapes)


def _tensors(dimensions: object) -> Iterator[Shape]:
    """Shapes of tensors, also of those that stand in a list, without those that hold nothing."""
    for entry in dimensions if isinstance(dimensions, list) else []:
        nested = isinstance(entry, list) and any(isinstance(inner, list) for inner in entry)
        for shape in entry if nested else [entry]:
            if _is_shape(shape):
                yield tuple(shape)


def _is_shape(shape: object) -> bool:
    if not isinstance(shape, list) or not shape:
        return False
    if not all(type(size) is int and 0 < size <= MOST_SIZE for size in shape):
        return False
    return prod(shape) <= MOST_VALUES
