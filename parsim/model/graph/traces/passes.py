"""The layers of a training step in a trace: calls of forward, backward tied to them, and shapes.

Autograd numbers the nodes that forward makes, and their backwards carry the number again. An
operator that makes no node shows the next one's number, so a number is of the last call that has
it. What runs behind a node without a number of its own, as the sums into gradients, belongs to it.

Source: torch/csrc/autograd/profiler and torch/autograd/profiler.py, "sequence numbers".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from parsim.errors import ModelError
from parsim.model.graph.operation import Shape
from parsim.model.graph.traces.events import OPERATOR, Call

BACKWARD = "autograd::engine::evaluate_function"
"""What the engine's call of a node of backward begins with."""

NUMBER = "Sequence number"


@dataclass(slots=True, kw_only=True)
class Layer:
    """Calls of forward between two that backward knows, and the calls of their backward."""

    forward: list[Call]
    backward: list[Call] = field(default_factory=list)


def last_pass(calls: list[Call]) -> tuple[list[Layer], int]:
    """The layers of a trace's last forward with its backward, and how many forwards there are.

    Raises:
        ModelError: no backward of a recorded forward, or forwards on several threads.
    """
    backward = [call for call in calls if call.top.name.startswith(BACKWARD)]
    if len({call.top.number("Fwd thread id") for call in backward} - {None}) > 1:
        raise ModelError("has forwards on several threads, as DataParallel's; record one device")
    makers = _makers(calls, {call.top.number(NUMBER) for call in backward} - {None})
    runs = _runs(calls, {id(call) for call in makers.values()})
    if not runs:
        raise ModelError(
            "has no training step: no backward of a recorded forward; record both of them"
        )
    first, last = runs[-1][0], runs[-1][-1]
    span = [call for call in calls if first.top.start <= call.top.start <= last.top.start]
    layers = _layers(
        [call for call in span if call.top.thread == first.top.thread],
        {id(call) for call in runs[-1]},
    )
    _tie(layers, [call for call in backward if call.top.start > last.top.start], makers)
    return layers, len(runs)


def _makers(calls: list[Call], numbers: set[int | None]) -> dict[int, Call]:
    """The call of forward that made each node, of the thread that made most of them."""
    threads: dict[tuple[str, str], dict[int, Call]] = {}
    for call in calls:
        if call.top.name.startswith(BACKWARD):
            continue
        for event in call.events:
            number = event.number(NUMBER)
            if event.category == OPERATOR and number is not None and number in numbers:
                threads.setdefault(call.top.thread, {})[number] = call
    return max(threads.values(), key=len, default={})


def _runs(calls: list[Call], made: set[int]) -> list[list[Call]]:
    """Calls of forward with a backward, parted where a backward runs between them."""
    runs: list[list[Call]] = []
    begun = False
    for call in calls:
        if call.top.name.startswith(BACKWARD):
            begun = False
        elif id(call) in made:
            if not begun:
                runs.append([])
            begun = True
            runs[-1].append(call)
    return runs


def _layers(forward: list[Call], made: set[int]) -> list[Layer]:
    """A layer for each call of a module, or each operator with a backward outside of modules."""
    layers: list[Layer] = []
    for call in forward:
        module = layers[-1].forward[0].module if layers else None
        if id(call) not in made or (module is not None and call.module is module):
            layers[-1].forward.append(call)
        else:
            layers.append(Layer(forward=[call]))
    return layers


def _tie(layers: list[Layer], backward: list[Call], makers: dict[int, Call]) -> None:
    """Give each layer the calls of its backward."""
    of_call = {id(call): layer for layer in layers for call in layer.forward}
    current: dict[tuple[str, str], Layer] = {}
    for call in backward:
        number = call.top.number(NUMBER)
        maker = makers.get(number) if number is not None else None
        layer = of_call.get(id(maker)) or current.get(call.top.thread)
        if layer is not None:
            current[call.top.thread] = layer
            layer.backward.append(call)


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
