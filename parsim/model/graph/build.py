"""From a graph to a model: the nodes between two cuts become a layer of operators."""

from __future__ import annotations

from math import prod

from parsim.model.graph.kept import first_kept
from parsim.model.graph.operation import Setting, moving
from parsim.model.graph.record import Graph, Node
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Operator


def build_graph(graph: Graph) -> Model:
    """Turn a graph into a Model whose parameter count is exact; equal layers are one object.

    Where a tensor is read by f operations, backward adds up f gradients: f - 1 passes of two reads
    and a write, which the layer that made the tensor pays.
    """
    kept, users, asked = first_kept(graph), graph.users(), _asked(graph)
    known: dict[tuple[object, ...], Layer] = {}
    layers, entering = [], prod(graph.input_shape)
    for nodes, names in zip(graph.layers, graph.crossing(), strict=True):
        parts: list[Operator] = []
        for node in nodes:
            parts += node.operation.operators(_setting(graph, node, kept, asked))
            if users[node.name] > 1 and node.name in asked:
                size = prod(graph.shapes[node.name])
                times = users[node.name] - 1
                parts.append(moving("accumulate", size, 0, 3 * times, launches=(0, times)))
        leaving = graph.values(names)
        key = (tuple(parts), entering, leaving)
        if key not in known:
            name = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name}..{nodes[-1].name}"
            known[key] = Layer(name=name, parts=tuple(parts), inputs=entering, outputs=leaving)
        layers.append(known[key])
        entering = leaving
    return Model(name=graph.name, layers=tuple(layers), tokens=1)


def _setting(graph: Graph, node: Node, kept: dict[str, int], asked: frozenset[str]) -> Setting:
    return Setting(
        inputs=tuple(graph.shapes[name] for name in node.inputs),
        output=graph.shapes[node.name],
        kept=kept[node.name],
        asks=any(name in asked for name in node.inputs),
    )


def _asked(graph: Graph) -> frozenset[str]:
    """Tensors whose gradient backward needs: those that hang on any parameter."""
    asked: set[str] = set()
    for node in graph.nodes:
        if has_parameters(graph, node) or any(name in asked for name in node.inputs):
            asked.add(node.name)
    return frozenset(asked)


def has_parameters(graph: Graph, node: Node) -> bool:
    """Whether a node itself has any."""
    inputs = tuple(graph.shapes[name] for name in node.inputs)
    at = Setting(inputs=inputs, output=graph.shapes[node.name], kept=0)
    operators = node.operation.operators(at)
    return any(op.split_parameters + op.repeated_parameters for op in operators)
