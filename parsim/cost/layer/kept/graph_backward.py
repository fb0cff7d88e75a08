"""What backward of a graph needs beyond what its forward kept, in eager PyTorch.

    conv1  relu1  pool  fc6  loss            backward at fc6: kept of conv1 .. fc6, the gradient of
    kept: 1   1     1    2                   its output, of its input, and of its weight until it
                   <-----                    is added to what stands

Going back, each operation frees what it kept; gradients of tensors live from their first reader to
their maker. A convolution's gradients exist twice where the library works in a layout of its own
(`Software.reorders_convolutions`): of its weight first, then of its input.

Source: allocations of single operations' backward, recorded (torch 2.13, CPU): 512 x 512 x 3 x 3
takes 2 x 9.4 MB, 64 channels of 32 x 32 2 x 4.2 + 0.15 MB. Leaves out: workspaces of libraries (a
processor without AVX-512 takes 37.8 MB for the weights' gradient of the former where rows are of
one or two values, a ResNet-18 of 32 x 32 images 12 % more in all), and that convolutions of fewer
channels than a vector holds are not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from parsim.cost.layer.kept.activations import kept_policy, whole_bytes
from parsim.cost.software import Software
from parsim.model.graph.build import asked_names, operators_of
from parsim.model.graph.images import Conv2d
from parsim.model.graph.record import Graph
from parsim.model.layer import Layer
from parsim.model.operators import Operator
from parsim.plan import PlanTable


class Beyond(NamedTuple):
    """Bytes beyond what forward kept, and those of them that are gradients of weights that stay."""

    size: float
    gradients: float


def backward_beyond(
    graph: Graph,
    software: Software,
    table_of: Callable[[str], tuple[PlanTable, int]],
    *,
    first: bool = False,
) -> Beyond:
    """Bytes at the highest moment of a backward, less what forward kept.

    Args:
        graph: that of one device.
        software: its stack.
        table_of: a plan, with its samples of a node of that name.
        first: no gradients of weights stand yet: each that is made stays, and none is added.
    """
    operators, asked = operators_of(graph), asked_names(graph)
    highest, left, stay = Beyond(0.0, 0.0), 0.0, 0.0
    living: dict[str, float] = {}
    for node in reversed(graph.nodes):
        table, samples = table_of(node.name)
        parts, value = tuple(operators[node.name]), float(table.precision.activation)
        view = node.operation.view  # its gradient is that of its output
        new = {
            name: 0.0 if view else prod(graph.shapes[name]) * samples * value
            for name in dict.fromkeys(node.inputs)
            if name in asked
        }
        twice = 1 + (isinstance(node.operation, Conv2d) and software.reorders_convolutions)
        weight, made = _gradients(parts) * value, sum(new.values())
        standing = sum(living.values()) + stay
        here = standing + max(twice * weight, weight + twice * made) - left
        stay += weight * first
        highest = max(highest, Beyond(here, stay))
        output = living.pop(node.name, 0.0)
        for name, size in new.items():
            living[name] = max(living.get(name, 0.0), output if view else size)
        left += kept_bytes(parts, table, software)
    return highest


def kept_bytes(operators: tuple[Operator, ...], table: PlanTable, software: Software) -> float:
    """Bytes that operators keep of a micro-batch of the plan."""
    if not operators:
        return 0.0
    layer = Layer(name="part", parts=operators, inputs=1, outputs=1)
    size = whole_bytes(layer, table, kept_policy(software))
    return float(size[0])


def _gradients(operators: tuple[Operator, ...]) -> float:
    """Values of the gradients of an operation's weights."""
    return float(sum(op.split_parameters + op.repeated_parameters for op in operators))
