"""From a graph to a model: the nodes between two cuts become a layer of operators."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parsim.errors import PlanError
from parsim.model.graph.operation import Operation, OperationContext, moving
from parsim.model.graph.pointwise import Relu, View
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Dense, Embedding
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Operator
from parsim.model.paths import FIRST, Branching, Path, runs


def first_kept(graph: Graph) -> dict[str, int]:
    """Values of a sample that each node is the first to keep, by its name.

    A convolution keeps its input, a ReLU its output; where both are one tensor the first one keeps
    it. Views and what works in place share the memory of their input; a part of a tensor keeps all
    of it where that is a `View`.
    """
    memory = {name: name for name in graph.entering}
    sizes = {name: prod(shape) for name, shape in graph.entering.items()}
    kept: set[str] = set()
    counts = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else INPUT
        shares = node.operation.view or _in_place(node.operation)
        memory[node.name] = memory[source] if shares else node.name
        part = isinstance(node.operation, View)
        sizes[node.name] = sizes[source] if part else prod(graph.shapes[node.name])
        wanted = []
        if "input" in node.operation.kept:
            wanted += list(node.inputs)
        if "output" in node.operation.kept:
            wanted.append(node.name)
        new = [name for name in dict.fromkeys(wanted) if memory[name] not in kept]
        kept.update(memory[name] for name in new)
        counts[node.name] = sum(sizes[name] for name in new)
    return counts


def _in_place(operation: Operation) -> bool:
    return isinstance(operation, Relu) and operation.in_place


def owners(graph: Graph) -> dict[str, str]:
    """For every node that uses another's table: the node that owns it.

    Raises:
        PlanError: no table of its size is before it.
    """
    tables: dict[tuple[int, int], str] = {}
    shared = {}
    for node in graph.nodes:
        size = _table(graph, node)
        if size is None:
            continue
        if getattr(node.operation, "owns_weight", True):
            tables.setdefault(size, node.name)
        elif size in tables:
            shared[node.name] = tables[size]
        else:
            raise PlanError(
                f"{graph.name}: node '{node.name}' owns no weight, and no table of {size[0]} rows "
                f"of {size[1]} is before it"
            )
    return shared


def _table(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Rows and width of the table that a node looks up or multiplies with."""
    op = node.operation
    if isinstance(op, Embedding):
        return op.num_embeddings, op.embedding_dim
    if isinstance(op, Dense):
        return op.out_features, graph.shapes[node.inputs[0]][-1]
    return None


def build_graph(graph: Graph) -> Model:
    """Turn a graph into a Model whose parameter count is exact; equal layers are one object.

    Where a tensor is read by f operations, backward adds up f gradients: f - 1 passes of two reads
    and a write, which the layer that made the tensor pays.
    """
    asked, by_node = asked_names(graph), operators_of(graph)
    known: dict[tuple[object, ...], Layer] = {}
    layers, entering = [], prod(graph.input_shape)
    for nodes, names in zip(graph.layers, graph.crossing(), strict=True):
        parts = [part for node in nodes for part in by_node[node.name]]
        leaving = graph.values(names)
        key = (tuple(parts), entering, leaving)
        if key not in known:
            name = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name}..{nodes[-1].name}"
            known[key] = Layer(name=name, parts=tuple(parts), inputs=entering, outputs=leaving)
        layers.append(known[key])
        entering = leaving
    branching = Branching(tuple(_paths(graph, by_node, asked)))
    return Model(name=graph.name, layers=tuple(layers), tokens=1, branching=branching, graph=graph)


def operators_of(graph: Graph) -> dict[str, list[Operator]]:
    """The operators of each node, with the sums of gradients of what several others read."""
    kept, users, asked = first_kept(graph), graph.users(), asked_names(graph)
    by_node: dict[str, list[Operator]] = {}
    for node in graph.nodes:
        parts = list(node.operation.operators(_setting(graph, node, kept, asked)))
        if users[node.name] > 1 and node.name in asked:
            size, times = prod(graph.shapes[node.name]), users[node.name] - 1
            parts.append(moving("accumulate", size, 0, 3 * times, launches=(0, times)))
        by_node[node.name] = parts
    return by_node


def _paths(
    graph: Graph, by_node: dict[str, list[Operator]], asked: frozenset[str]
) -> Iterator[Path]:
    """The runs of nodes between forks and joins."""
    number_of = {node.name: number for number, node in enumerate(graph.nodes)}
    number_of |= dict.fromkeys(graph.entering, FIRST)
    path_of = {FIRST: FIRST}
    reads = [tuple(number_of[name] for name in node.inputs) for node in graph.nodes]
    for number, run in enumerate(runs(reads)):
        path_of |= dict.fromkeys(run, number)
        nodes, last = [graph.nodes[index] for index in run], graph.nodes[run[-1]].name
        parts = tuple(part for node in nodes for part in by_node[node.name])
        values = prod(graph.shapes[last])
        yield Path(
            nodes=tuple(node.name for node in nodes),
            layer=Layer(name=nodes[0].name, parts=parts, inputs=values, outputs=values),
            takes=tuple(dict.fromkeys(path_of[source] for source in reads[run[0]])),
            leaves=values,
            asks=last in asked,
        )


def _setting(
    graph: Graph, node: Node, kept: dict[str, int], asked: frozenset[str]
) -> OperationContext:
    return OperationContext(
        inputs=tuple(graph.shapes[name] for name in node.inputs),
        output=graph.shapes[node.name],
        kept=kept[node.name],
        asks=any(name in asked for name in node.inputs),
    )


def asked_names(graph: Graph) -> frozenset[str]:
    """Tensors whose gradient backward needs: that hang on a parameter, or on an asked input."""
    asked = {INPUT} if graph.asks_input else set[str]()
    for node in graph.nodes:
        if graph.has_parameters(node) or any(name in asked for name in node.inputs):
            asked.add(node.name)
    return frozenset(asked)
