"""Writes the operations of an exported module as nodes of a graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

from executor.profiling.known import OPERATIONS
from executor.profiling.recurrent import GATES, recurrent_layers, takes_first
from executor.profiling.seconds import tensors
from executor.profiling.sizes import Sizes
from executor.profiling.stored import Stored, memory_of
from executor.profiling.weights import Weights
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.pointwise import Copy, Flatten, View
from parsim.model.graph.record import INPUT, Node
from parsim.model.graph.texts import Measured

ROWS = frozenset({"linear", "dropout", "layer_norm", "gelu", "relu"})
"""Operations that take rows as they come, wherever the batch stands among them."""
MOVING = frozenset({"contiguous", "clone", "reshape"})
"""Operations that move values to another place, or nothing, wherever the batch stands."""
OWNING = ROWS | {"conv2d", "batch_norm", "instance_norm", "embedding"}
"""Operations whose parameters their formulas count."""


class Writer(fx.Interpreter):  # type: ignore[misc]  # torch has no types here
    """Runs an exported graph once, and writes down what comes from its input.

    What is neither known nor a view is listed in `measured`, by the name of torch's node; its
    seconds and what it keeps are not there yet.
    """

    def __init__(self, module: fx.GraphModule, sizes: Sizes, names: Sequence[str]) -> None:
        super().__init__(module)
        self.sizes = sizes
        self.waiting = list(names)
        """Names of the inputs that have not yet entered."""
        self.entered: dict[str, Shape] = {}
        """Sizes of a sample of each input that has."""
        self.stored = Stored([*module.parameters(), *module.buffers()])
        self.inputs: dict[str, str] = {}
        """The name that a node's output has in the graph, of those that come from the input."""
        self.nodes: list[Node] = []
        self.names: set[str] = set(names)
        self.measured: dict[str, fx.Node] = {}
        self.weights = Weights()
        self.recurrent: set[str] = set()
        """Nodes whose first result is the last of their layers, by torch's names."""

    def run_node(self, n: fx.Node) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Run one operation and write it down."""
        self.stored.at = n.name
        result = super().run_node(n)
        if n.op == "placeholder":
            self.inputs[n.name] = name = self.waiting.pop(0)
            self.entered[name] = self._output(n, result)
        sources = [arg for arg in n.all_input_nodes if arg.name in self.inputs]
        if n.op == "call_function" and sources:
            self.inputs[n.name] = self._written(n, sources, result)
        else:
            self.weights.made_of(n, result)
        return result

    def further(self) -> dict[str, Shape]:
        """Sizes of a sample of the inputs behind the first one, of those that operations read."""
        read = {name for node in self.nodes for name in node.inputs}
        return {name: s for name, s in self.entered.items() if name in read and name != INPUT}

    def _written(self, n: fx.Node, sources: list[fx.Node], result: object) -> str:
        if takes_first(n) and sources[0].name in self.recurrent:
            return self.inputs[sources[0].name]
        layers = self._recurrent(n, sources)
        if layers:
            return self._stacked(n, layers, self.inputs[sources[0].name])
        return self._operation(n, sources, result)

    def _operation(self, n: fx.Node, sources: list[fx.Node], result: object) -> str:
        """Write down one operation: known, a view or measured."""
        inputs = tuple(self.inputs[source.name] for source in _in_order(n, sources))
        name, view = self._name(n), self._is_view(n, result)
        operation = _moved(self._known(n, sources, result), self._output(n, result), view=view)
        if operation is not None and operation.arity not in (None, len(inputs)):
            operation = None
        operands = self.weights.of(n)
        if operands and word_of(n) not in OWNING:
            operation, view = None, False  # a sum with a learned table is no bare sum
        if operation is None and view:
            inputs, operation = inputs[:1], View(output=self._output(n, result))
        if operation is None:
            operation = self._measured(n, result, operands)
            self.measured[name] = n
        else:
            operation = self.weights.owning(operation, self._tensors(n).get("weight"))
        self.weights.count(operands)
        self.nodes.append(Node(name=name, operation=operation, inputs=inputs))
        return name

    def _recurrent(self, n: fx.Node, sources: list[fx.Node]) -> list[Operation]:
        """The layers of a recurrent module; none of any other node."""
        if word_of(n) not in GATES or not isinstance(self.env[sources[0]], Tensor):
            return []
        given, first = _named(n), self.env[sources[0]]
        params = [self.env[node] for node in given["params"]]
        shape = self.sizes.sample(sources[0].name, first)
        return recurrent_layers(word_of(n), given, len(sources), shape, params)

    def _stacked(self, n: fx.Node, layers: list[Operation], source: str) -> str:
        """Write down layers one behind the other, and return the last one's name."""
        self.recurrent.add(n.name)
        self.weights.count(self.weights.of(n))
        for layer in layers:
            name = self._name(n)
            self.nodes.append(Node(name=name, operation=layer, inputs=(source,)))
            source = name
        return source

    def _known(self, n: fx.Node, sources: list[fx.Node], result: object) -> Operation | None:
        known, first = OPERATIONS.get(word_of(n)), self.env[sources[0]]
        if known is None or not isinstance(result, Tensor) or not isinstance(first, Tensor):
            return None
        whole = self.sizes.has_rows if word_of(n) in ROWS else self.sizes.leads
        if not whole(n.name, result) or not whole(sources[0].name, first):
            return Copy(output=self._output(n, result)) if word_of(n) in MOVING else None
        shapes = self.sizes.sample(sources[0].name, first), self.sizes.sample(n.name, result)
        return known(self._arguments(n), *shapes)

    def _is_view(self, n: fx.Node, result: object) -> bool:
        """Whether an operation only gives its input's memory another shape, or a part of it."""
        schema = getattr(n.target, "_schema", None)
        args, made = self.fetch_args_kwargs_from_env(n), tensors(result)
        there = {memory_of(tensor) for tensor in tensors(args)}
        shared = bool(made) and all(memory_of(tensor) in there for tensor in made)
        return shared and not (schema is not None and schema.is_mutable)

    def _output(self, n: fx.Node, result: object) -> Shape:
        """Sizes of a sample of what an operation makes, several tensors as so many values."""
        if isinstance(result, Tensor):
            return self.sizes.sample(n.name, result)
        values = sum(tensor.numel() for tensor in tensors(result))
        return (max(values // self.sizes.batch, 1),)

    def _arguments(self, n: fx.Node) -> dict[str, Any]:
        """Arguments by name, defaults included; tensors as their shapes."""
        schema = n.target._schema.arguments
        values = {argument.name: argument.default_value for argument in schema}
        values |= _named(n)
        return {name: self._plain(value) for name, value in values.items()}

    def _tensors(self, n: fx.Node) -> dict[str, Any]:
        """Arguments that nodes make, by name."""
        nodes = {name: arg for name, arg in _named(n).items() if isinstance(arg, fx.Node)}
        return {name: self.env[arg] for name, arg in nodes.items()}

    def _plain(self, value: object) -> object:
        if isinstance(value, fx.Node):
            parameters = self.env[value]
            return tuple(parameters.shape) if isinstance(parameters, Tensor) else parameters
        return value

    def _measured(self, n: fx.Node, result: object, operands: list[nn.Parameter]) -> Measured:
        """An operation that has no formula, without its seconds."""
        return Measured(
            output=self._output(n, result),
            forward_s=0.0,
            backward_s=0.0,
            parameters=self.weights.new(operands),
        )

    def _name(self, n: fx.Node) -> str:
        """The path of the module that runs the operation, or the operation's own name."""
        stack: Mapping[str, Any] = n.meta.get("nn_module_stack") or {}
        paths = [str(entry[0]) for entry in stack.values() if entry and entry[0]]
        name = re.sub(r"[^\w.]", "_", paths[-1]) if paths else word_of(n)
        if name in self.names:
            name = f"{name}.{word_of(n)}"
        count, plain = 2, name
        while name in self.names:
            name, count = f"{plain}_{count}", count + 1
        self.names.add(name)
        return name


def word_of(n: fx.Node) -> str:
    """An operation's name without library and overload: aten.conv2d.default is conv2d."""
    target = n.target
    return str(getattr(target, "_opname", getattr(target, "__name__", target)))


def _named(n: fx.Node) -> dict[str, Any]:
    """The arguments that an operation is given, by the names of its schema."""
    schema = getattr(n.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    return {**dict(zip(names, n.args, strict=False)), **n.kwargs}


def _in_order(n: fx.Node, sources: list[fx.Node]) -> list[fx.Node]:
    """Inputs as the operation takes them: a sum of a tensor and itself takes it twice."""
    listed = [arg for arg in _flat(n.args) if isinstance(arg, fx.Node)]
    return [arg for arg in listed if arg in sources] or sources


def _flat(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return [inner for part in value for inner in _flat(part)]
    if isinstance(value, dict):
        return [inner for part in value.values() for inner in _flat(part)]
    return [value]


def _moved(operation: Operation | None, output: Shape, *, view: bool) -> Operation | None:
    """A flattening that has to move values as a copy; nothing where a copy moves none."""
    if isinstance(operation, Flatten) and not view:
        return Copy(output=output)
    return None if isinstance(operation, Copy) and view else operation
