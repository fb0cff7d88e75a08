"""The losses of a graph: which nodes they are, among what they choose, and whether it ends so."""

from __future__ import annotations

from parsim.model.graph.record import Graph, Node
from parsim.model.graph.texts import CrossEntropy, MeanLoss


def loss_nodes(graph: Graph) -> tuple[Node, ...]:
    """The losses in the order of the graph: one, or one for each task of a multi-task model."""
    return tuple(node for node in graph.nodes if isinstance(node.operation, CrossEntropy))


def classes(graph: Graph) -> tuple[int, ...]:
    """Words or classes among which each loss chooses; without a loss, what the last node reads."""
    nodes = loss_nodes(graph) or graph.nodes[-1:]
    return tuple(graph.shapes[node.inputs[0]][-1] for node in nodes)


def trains(graph: Graph) -> bool:
    """Whether a graph ends with its loss, or the mean of losses of one answer each."""
    last = graph.nodes[-1]
    if not isinstance(last.operation, MeanLoss):
        return isinstance(last.operation, CrossEntropy)
    losses = {node.name: node for node in loss_nodes(graph)}
    alone = (
        name in losses and len(graph.shapes[losses[name].inputs[0]]) == 1 for name in last.inputs
    )
    return all(alone) and len(losses) == len(last.inputs)
