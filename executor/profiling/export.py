"""A module's exported graph as parsim's: known operations as such, others with measured seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from executor.profiling.known import OPERATIONS
from parsim.errors import InputError
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import CrossEntropy, Measured

REPEATS = 3
"""So often an operation is timed; the fastest counts."""


def timed(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[float, float]:
    """Seconds forward and backward; 0 backward where nothing has a gradient."""
    leaves: list[Tensor] = []
    given = [_leaf(arg, leaves) for arg in args]
    forward, result = _fastest(lambda: function(*given, **kwargs))
    outputs = [t for t in _tensors(result) if t.requires_grad]
    if not leaves or not outputs:
        return forward, 0.0
    ones = [torch.ones_like(t) for t in outputs]

    def back() -> object:
        again = [t for t in _tensors(function(*given, **kwargs)) if t.requires_grad]
        return torch.autograd.grad(again, leaves, ones, allow_unused=True, retain_graph=True)

    both, _ = _fastest(back)
    return forward, max(both - forward, 0.0)


def _fastest(function: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(REPEATS + 1):  # the first one warms up
        began = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - began)
    return best, result


def _leaf(value: object, leaves: list[Tensor]) -> object:
    if isinstance(value, list | tuple):
        return type(value)(_leaf(part, leaves) for part in value)
    if not isinstance(value, Tensor):
        return value
    copy = value.detach().clone()
    if copy.is_floating_point():
        leaves.append(copy.requires_grad_())
        return copy * 1.0  # what a network computes may be overwritten, a leaf may not
    return copy


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return []


def exported(model: nn.Module, batch: Tensor) -> fx.GraphModule:
    """The module as operations on tensors.

    Raises:
        InputError: torch cannot export it; the message names what it stumbled over.
    """
    try:
        program = torch.export.export(model, (batch,), strict=False)
    except Exception as reason:  # torch raises many kinds
        lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
        message = lines[0] if lines else "no message"
        raise InputError(f"torch.export: {type(reason).__name__}: {message}") from None
    return program.module()


class Writer(fx.Interpreter):  # type: ignore[misc]  # torch has no types here
    """Runs an exported graph once, and writes down what comes from its input."""

    def __init__(self, module: fx.GraphModule, batch: Tensor) -> None:
        super().__init__(module)
        self.batch = len(batch)
        self.inputs: dict[str, str] = {}
        """The name that a node's output has in the graph, of those that come from the input."""
        self.nodes: list[Node] = []
        self.names: set[str] = {INPUT}
        self.measured: list[str] = []

    def run_node(self, n: fx.Node) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Run one operation and write it down."""
        result = super().run_node(n)
        if n.op == "placeholder":
            self.inputs[n.name] = INPUT
        sources = [arg for arg in n.all_input_nodes if arg.name in self.inputs]
        if n.op == "call_function" and sources:
            self.inputs[n.name] = self._written(n, sources, result)
        return result

    def _written(self, n: fx.Node, sources: list[fx.Node], result: object) -> str:
        operation = self._known(n, sources, result)
        inputs = tuple(self.inputs[source.name] for source in _in_order(n, sources))
        if operation is None:
            operation = self._timed(n, result)
            self.measured.append(_word(n))
        name = self._name(n)
        self.nodes.append(Node(name=name, operation=operation, inputs=inputs))
        return name

    def _known(self, n: fx.Node, sources: list[fx.Node], result: object) -> Operation | None:
        known = OPERATIONS.get(_word(n))
        if known is None or not isinstance(result, Tensor) or not self._whole(result):
            return None
        first = self.env[sources[0]]
        if not isinstance(first, Tensor) or not self._whole(first):
            return None
        return known(self._arguments(n), _shape(first), _shape(result))

    def _whole(self, tensor: Tensor) -> bool:
        """Whether a tensor holds the batch in its first dimension, and something behind it."""
        return bool(tensor.dim() > 1 and tensor.shape[0] == self.batch)

    def _arguments(self, n: fx.Node) -> dict[str, Any]:
        """Arguments by name, defaults included; tensors as their shapes."""
        schema = n.target._schema.arguments
        values = {argument.name: argument.default_value for argument in schema}
        values |= dict(zip((argument.name for argument in schema), n.args, strict=False))
        values |= n.kwargs
        return {name: self._plain(value) for name, value in values.items()}

    def _plain(self, value: object) -> object:
        if isinstance(value, fx.Node):
            parameters = self.env[value]
            return tuple(parameters.shape) if isinstance(parameters, Tensor) else parameters
        return value

    def _timed(self, n: fx.Node, result: object) -> Measured:
        """An operation that has no formula: its seconds here, and what it holds."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        forward, backward = timed(n.target, args, kwargs)
        tensors = [t for t in _flat(result) if isinstance(t, Tensor)]
        values = sum(t.numel() for t in tensors) // self.batch or 1
        whole = isinstance(result, Tensor) and self._whole(result)
        parameters = [t for t in _flat((args, kwargs)) if isinstance(t, nn.Parameter)]
        return Measured(
            output=_shape(result) if whole and isinstance(result, Tensor) else (values,),
            forward_s=forward / self.batch,
            backward_s=backward / self.batch,
            parameters=sum(parameter.numel() for parameter in parameters),
            kept_values=values if backward else 0,
        )

    def _name(self, n: fx.Node) -> str:
        """The path of the module that runs the operation, or the operation's own name."""
        stack: Mapping[str, Any] = n.meta.get("nn_module_stack") or {}
        paths = [str(entry[0]) for entry in stack.values() if entry and entry[0]]
        name = re.sub(r"[^\w.]", "_", paths[-1]) if paths else _word(n)
        if name in self.names:
            name = f"{name}.{_word(n)}"
        count, plain = 2, name
        while name in self.names:
            name, count = f"{plain}_{count}", count + 1
        self.names.add(name)
        return name


def graph_of(name: str, module: fx.GraphModule, batch: Tensor, device: str) -> tuple[Graph, Writer]:
    """Run an exported module once and return its graph, which ends with a loss over classes."""
    writer = Writer(module, batch)
    writer.run(batch)
    if not writer.nodes:
        raise InputError(f"{name}: nothing in it depends on its input")
    nodes = writer.nodes
    last = nodes[-1]
    graph = Graph(name=name, input_shape=tuple(batch.shape[1:]), nodes=tuple(nodes))
    if len(graph.output_shape) <= 2 and graph.output_shape[-1] > 1:
        loss = Node(name="loss", operation=CrossEntropy(), inputs=(last.name,))
        nodes = [*nodes, loss]
    used = device if writer.measured else ""
    shape = tuple(batch.shape[1:])
    return Graph(name=name, input_shape=shape, nodes=tuple(nodes), device=used), writer


def _word(n: fx.Node) -> str:
    """An operation's name without library and overload: aten.conv2d.default is conv2d."""
    target = n.target
    return str(getattr(target, "_opname", getattr(target, "__name__", target)))


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


def _shape(tensor: Tensor) -> Shape:
    return tuple(int(size) for size in tensor.shape[1:])
