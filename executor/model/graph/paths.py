"""Runs a graph of operations by paths, for devices that hold some of its paths each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from executor.model.graph.stage import GraphStage, key_of
from executor.model.loss import cross_entropy
from parsim.model.graph.losses import loss_nodes
from parsim.model.graph.record import Graph
from parsim.model.graph.texts import CrossEntropy, MeanLoss
from parsim.model.paths import Path


class PathRunner:
    """Runs paths of a graph with the modules of a stage that holds their nodes.

    A loss is taken where its path is, of the column of targets that is its task's; the mean of
    losses takes single numbers. So heads on devices apart exchange losses, not logits.

    `final` is the one that ends with the loss.
    """

    def __init__(self, graph: Graph, paths: tuple[Path, ...], stage: GraphStage) -> None:
        """Find the nodes of each path, and which task each loss is of."""
        self.graph, self.paths = graph, paths
        self.nodes = {node.name: node for node in graph.nodes}
        self.made = {
            key: made for layer in stage.layers.values() for key, made in layer.made.items()
        }
        last = graph.nodes[-1].name
        self.final = next(n for n, path in enumerate(paths) if path.nodes[-1] == last)
        self.task = {node.name: number for number, node in enumerate(loss_nodes(graph))}

    def run(self, number: int, inputs: Mapping[str, Tensor], targets: Tensor) -> Tensor:
        """What a path hands on; `inputs` by the names of the nodes that its first node reads."""
        known = dict(inputs)
        for name in self.paths[number].nodes:
            node = self.nodes[name]
            given = [known[source] for source in node.inputs]
            if isinstance(node.operation, CrossEntropy):
                known[name] = self._loss(name, given[0], targets)
            elif isinstance(node.operation, MeanLoss):
                known[name] = torch.stack(given).mean()
            else:
                known[name] = self.made[key_of(name)](*given)
        return known[self.last(number)]

    def _loss(self, name: str, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of one task; of texts, of which there is one, over all its tokens."""
        if logits.dim() > 2:
            return cross_entropy(logits, targets)
        task = self.task[name]
        return cross_entropy(logits.unsqueeze(1), targets[:, task : task + 1])

    def last(self, number: int) -> str:
        """The node whose output a path hands on."""
        return self.paths[number].nodes[-1]

    def shape(self, number: int, samples: int) -> tuple[int, ...]:
        """The shape of what a path hands on of so many samples; of losses, of one number."""
        name = self.last(number)
        if isinstance(self.nodes[name].operation, CrossEntropy | MeanLoss):
            return ()
        return (samples, *self.graph.shapes[name])
