"""Which operation is the first to keep a tensor between forward and backward.

A convolution keeps its input, a ReLU its output; where both are the same tensor it is kept once.
Views and what works in place share the memory of their input.
"""

from __future__ import annotations

from math import prod

from parsim.model.graph.operation import Operation
from parsim.model.graph.pointwise import Relu
from parsim.model.graph.record import INPUT, Graph


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
