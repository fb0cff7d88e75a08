"""A graph of operations as a torch module, by layers of nodes or by paths: the twin of its model.

Built from the same record that the cost model prices, so parameters and shapes are equal by
construction. What crosses a layer's border is handed on as a tuple, by the order of the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from executor.model.graph.modules import module_of
from executor.model.graph.tokens import weight_of
from executor.model.loss import cross_entropy
from executor.model.offload import HostLayer, repeated
from executor.model.stage import Stage
from parsim.model.graph.build import owners
from parsim.model.graph.losses import loss_nodes
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import CrossEntropy, MeanLoss
from parsim.model.paths import Path
from parsim.plan import Recompute


def last_read(nodes: Sequence[Node], leaves: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By the name of each node the tensors that it is the last of these nodes to read.

    Without `leaves`, which others read. What backward does not need of them goes with that.
    """
    reader = {name: node.name for node in nodes for name in node.inputs if name not in leaves}
    return {
        node.name: tuple(name for name, last in reader.items() if last == node.name)
        for node in nodes
    }


class GraphLayer(nn.Module):  # type: ignore[misc]
    """The nodes between two cuts: takes the tensors named `enters` and gives those of `leaves`."""

    def __init__(
        self,
        graph: Graph,
        nodes: tuple[Node, ...],
        enters: tuple[str, ...],
        leaves: tuple[str, ...],
        *,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.nodes, self.enters, self.leaves = nodes, enters, leaves
        self.last = last_read(nodes, leaves)
        self.recompute = recompute
        self.host: HostLayer | None = None
        self.made = nn.ModuleDict({key_of(node.name): module_of(graph, node) for node in nodes})

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the nodes in order."""
        with nullcontext() if self.host is None else self.host.kept(self):
            if self.recompute and self.training:
                given: tuple[Tensor, ...] = repeated(self._nodes, *tensors, host=self.host)
                return given
            return self._nodes(*tensors)

    def _nodes(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        known = dict(zip(self.enters, tensors, strict=True))
        for node in self.nodes:
            inputs = (known[name] for name in node.inputs)
            known[node.name] = self.made[key_of(node.name)](*inputs)
            for name in self.last[node.name]:
                del known[name]
        return tuple(known[name] for name in self.leaves)


class GraphStage(Stage):
    """The layers of a graph that a pipeline stage holds; one tensor enters and one leaves.

    With `only`, of the nodes only those of these names, as parts of the layers: such a stage cannot
    run as a whole.
    """

    def __init__(
        self,
        graph: Graph,
        layers: range,
        recompute: Recompute,
        only: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        kept = graph.layers if only is None else _parts(graph, only)
        crossing = ((INPUT,), *graph.crossing())
        again = recompute is Recompute.FULL
        self.layers = nn.ModuleDict(
            {
                str(i): GraphLayer(graph, kept[i], crossing[i], crossing[i + 1], recompute=again)
                for i in layers
            }
        )
        self.gives_logits = layers.stop == len(graph.layers)
        self.shared = owners(graph)
        self.tie()

    def tie(self) -> None:
        """Let nodes that own no weight use their table's (see `executor.model.graph.tokens`)."""
        parts = {key: part for layer in self.layers.values() for key, part in layer.made.items()}
        for name, owner in self.shared.items():
            if key_of(name) in parts and key_of(owner) in parts:
                table = weight_of(parts[key_of(owner)])
                weight_of(parts[key_of(name)]).weight = table.weight

    def forward(self, x: Tensor) -> Tensor:
        """Map images (b, c, h, w), tokens (b, s), or what the stage before gave, to what leaves."""
        tensors: tuple[Tensor, ...] = (x,)
        for layer in self.layers.values():
            tensors = layer(*tensors)
        return tensors[0]


def _parts(graph: Graph, only: Collection[str]) -> tuple[tuple[Node, ...], ...]:
    """The layers of a graph with the nodes of these names alone."""
    return tuple(tuple(node for node in layer if node.name in only) for layer in graph.layers)


def key_of(name: str) -> str:
    """A node's name as part of a parameter's name, in which dots divide."""
    return name.replace(".", "_")


def recompute_first(layers: Iterable[nn.Module], first: int, others: Recompute) -> None:
    """Let the first layers be computed again as a whole, and the others as `others` says."""
    for number, layer in enumerate(layers):
        mode = Recompute.FULL if number < first else others
        if isinstance(layer, GraphLayer):  # which has no attention of its own to repeat
            layer.recompute = mode is Recompute.FULL
            continue
        layer.recompute = layer.attention.recompute = mode


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
