"""What operations of a graph share: tensors that are kept for backward, and tables of weights.

A convolution keeps its input, a ReLU its output; where both are one tensor the first one keeps it.
Views and what works in place share the memory of their input.
"""

from __future__ import annotations

from math import prod

from parsim.errors import PlanError
from parsim.model.graph.operation import Operation
from parsim.model.graph.pointwise import Relu
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Dense, Embedding


def first_kept(graph: Graph) -> dict[str, int]:
    """Values of a sample that each node is the first to keep, by its name."""
    memory = {INPUT: INPUT}
    kept: set[str] = set()
    counts = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else INPUT
        shares = node.operation.view or _in_place(node.operation)
        memory[node.name] = memory[source] if shares else node.name
        wanted = []
        if "input" in node.operation.kept:
            wanted += list(node.inputs)
        if "output" in node.operation.kept:
            wanted.append(node.name)
        new = [name for name in dict.fromkeys(wanted) if memory[name] not in kept]
        kept.update(memory[name] for name in new)
        counts[node.name] = sum(prod(graph.shapes[name]) for name in new)
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
    """Rows and width of the table that a node looks up, or multiplies with and does not own."""
    op = node.operation
    if isinstance(op, Embedding):
        return op.num_embeddings, op.embedding_dim
    if isinstance(op, Dense) and not op.owns_weight:
        return op.out_features, graph.shapes[node.inputs[0]][-1]
    return None
