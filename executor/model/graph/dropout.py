"""A graph whose gradients can be compared: nothing is dropped."""

from __future__ import annotations

from dataclasses import replace

from parsim.model.graph import pointwise
from parsim.model.graph.record import Graph


def without_dropout(graph: Graph) -> Graph:
    """This graph, with every dropout letting all through."""
    nodes = tuple(
        replace(node, operation=replace(node.operation, p=0.0))
        if isinstance(node.operation, pointwise.Dropout)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)
