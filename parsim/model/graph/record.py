"""The record of a graph: nodes in order, each an operation on the outputs of earlier ones.

    input ──▶ conv ──▶ norm ──▶ relu ──┬──▶ conv ──▶ norm ──┬──▶ add ──▶ relu ──▶ ...
                                       └────────────────────┘
            cut                      cut                         cut       cut

A cut is legal where one tensor alone crosses. Where `stages` name nodes, layers end at those
instead, and whatever is still needed behind crosses with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from parsim.errors import ModelError, alternatives, shown
from parsim.model.graph.operation import Operation, OperationContext, Shape

INPUT = "input"
"""Name of what enters a graph, of the first where several tensors do."""

MOST_NODES = 200_000
"""Some ten times the largest graph that anybody exports; more is a slip in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operation in its place: a name of its own, and the names of what it takes."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in order of execution, the shape of a sample, and optionally the ends of layers.

    `device` is what measured nodes were timed on, empty where nothing is measured, and `path` the
    file that the graph was read from, empty for one of the catalog. `profiled_parameters` are those
    of the module that was profiled; 0: nobody says.

    `further_inputs` are what enters beside `input`: a target text, a mask. Every stage has its own
    copy of them, and of what is made of them alone: they cross no cut. Shapes are of one sample.
    `asks_input` says that backward makes the gradient of `input` too, as nobody who trains needs.

    Raises:
        ModelError: a name twice or unknown, shapes that do not fit, no node, no legal last layer.
    """

    name: str
    input_shape: Shape
    nodes: tuple[Node, ...]
    ends: tuple[str, ...] = ()
    device: str = ""
    path: str = ""
    profiled_parameters: int = 0
    further_inputs: Mapping[str, Shape] = field(default_factory=dict)
    asks_input: bool = False
    shapes: Mapping[str, Shape] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.nodes) <= MOST_NODES:
            raise ModelError(f"{self.name}: a graph has 1 to {MOST_NODES:,} nodes")
        if INPUT in self.further_inputs:
            raise ModelError(f"{self.name}: '{INPUT}' is the first input; name the further ones")
        shapes: dict[str, Shape] = self.entering
        for node in self.nodes:
            shapes[node.name] = _shape(node, shapes)
        object.__setattr__(self, "shapes", shapes)
        for end in self.ends:
            if end not in shapes:
                rest = alternatives(end, shapes)
                raise ModelError(
                    f"{self.name}: layers end at '{shown(end)}', which is no node{rest}"
                )

    @property
    def entering(self) -> dict[str, Shape]:
        """Shapes of all inputs by name, the first one's first."""
        return {INPUT: self.input_shape, **self.further_inputs}

    @property
    def output_shape(self) -> Shape:
        """What leaves the last node."""
        return self.shapes[self.nodes[-1].name]

    @property
    def layers(self) -> tuple[tuple[Node, ...], ...]:
        """Nodes between cuts."""
        ends = set(self.ends) or set(self._legal())
        groups: list[tuple[Node, ...]] = []
        begun: list[Node] = []
        for node in self.nodes:
            begun.append(node)
            if node.name in ends or node is self.nodes[-1]:
                groups.append(tuple(begun))
                begun = []
        return tuple(groups)

    def crossing(self) -> tuple[tuple[str, ...], ...]:
        """Names of the tensors that cross behind each layer, the last one's included."""
        last, beside = self.last_uses(), self.beside()
        order = {node.name: number for number, node in enumerate(self.nodes)} | {INPUT: -1}
        names, live = [], [INPUT]
        for layer in self.layers:
            end = order[layer[-1].name]
            live += [node.name for node in layer if node.name not in beside]
            live = [name for name in live if last[name] > end or name == self.nodes[-1].name]
            names.append(tuple(live))
        return tuple(names)

    def last_uses(self) -> dict[str, int]:
        """Number of the last node that reads each tensor; -1 for one that nothing reads."""
        last = dict.fromkeys(self.shapes, -1)
        for number, node in enumerate(self.nodes):
            for name in node.inputs:
                last[name] = number
        return last

    def users(self) -> dict[str, int]:
        """How many inputs read each tensor."""
        count = dict.fromkeys(self.shapes, 0)
        for node in self.nodes:
            for name in node.inputs:
                count[name] += 1
        return count

    def values(self, names: tuple[str, ...]) -> int:
        """Values of a sample in some tensors together."""
        return sum(prod(self.shapes[name]) for name in names)

    def beside(self) -> frozenset[str]:
        """Names of the further inputs, and of what is made of them alone without parameters."""
        beside = set(self.further_inputs)
        for node in self.nodes if beside else ():
            if beside.issuperset(node.inputs) and not self.has_parameters(node):
                beside.add(node.name)
        return frozenset(beside)

    def has_parameters(self, node: Node) -> bool:
        """Whether a node itself has any."""
        inputs = tuple(self.shapes[name] for name in node.inputs)
        at = OperationContext(inputs=inputs, output=self.shapes[node.name], kept=0)
        operators = node.operation.operators(at)
        return any(op.split_parameters + op.repeated_parameters for op in operators)

    def _legal(self) -> Iterator[str]:
        """Nodes behind which one tensor alone is still needed."""
        last, live, beside = self.last_uses(), {INPUT}, self.beside()
        for number, node in enumerate(self.nodes):
            live = {name for name in live | {node.name} if last[name] > number} - beside
            if live == {node.name}:
                yield node.name


def _shape(node: Node, shapes: Mapping[str, Shape]) -> Shape:
    """The shape that a node makes, its inputs checked."""
    name, operation = shown(node.name), node.operation
    if node.name in shapes:
        raise ModelError(f"node '{name}' is there twice; give it another name")
    for source in node.inputs:
        if source not in shapes:
            rest = alternatives(source, shapes)
            raise ModelError(f"node '{name}' takes '{shown(source)}', which is not before it{rest}")
    if operation.arity is not None and len(node.inputs) != operation.arity:
        wanted = f"{operation.arity} input" + "s" * (operation.arity > 1)
        raise ModelError(f"node '{name}' takes {wanted}, got {len(node.inputs)}")
    try:
        shape = operation.shape(tuple(shapes[source] for source in node.inputs))
    except (ModelError, ValueError, IndexError) as reason:
        raise ModelError(f"node '{name}': {reason}") from None
    if not shape or min(shape) < 1:
        raise ModelError(f"node '{name}' makes a tensor of shape {shape}, which holds nothing")
    return shape
