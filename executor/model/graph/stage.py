"""A graph of operations as a torch module, by layers of nodes: the twin of its model.

Built from the same record that the cost model prices, so parameters and shapes are equal by
construction. What crosses a layer's border is handed on as a tuple, by the order of the record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext

from torch import Tensor, nn

from executor.model.graph.modules import module_of
from executor.model.graph.tokens import weight_of
from executor.model.offload import HostLayer, repeated
from executor.model.stage import Stage
from parsim.model.graph.build import owners
from parsim.model.graph.record import INPUT, Graph, Node
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

    def recompute_as(self, mode: Recompute) -> None:
        """Let backward compute the layer again, or not: there is no attention alone to repeat."""
        self.recompute = mode is Recompute.FULL

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
        """Map images (b, c, h, w), tokens (b, s), or what the stage before gave, to what leaves.

        Images are fp32, whatever the parameters are.
        """
        first = next(self.parameters(), None)
        if first is not None and x.is_floating_point():
            x = x.to(first.dtype)
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
