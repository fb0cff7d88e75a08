"""A graph of operations as a torch module, a layer of nodes at a time: the twin of its model.

Built from the same record that the cost model prices, so parameters and shapes are equal by
construction. What crosses a layer's border is handed on as a tuple, by the order of the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.model.batch_norm import BatchNorm
from executor.model.boxing import Change
from executor.model.offload import HostLayer, repeated
from executor.model.stage import Stage
from executor.model.tokens import Additive, Heads, Table, crosses, weight_of
from parsim.errors import ModelError, PlanError
from parsim.layout.laid import Boxing
from parsim.model.graph import images, joins, pointwise, texts
from parsim.model.graph.kept import owners
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.operations import NAMES
from parsim.model.graph.pointwise import Multiply, Pointwise
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.plan import Recompute

Made = Callable[[Any, tuple[Shape, ...]], nn.Module]
"""From an operation and the shapes of its inputs to a module."""


class Function(nn.Module):  # type: ignore[misc]
    """A function of tensors without parameters, as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the function gives."""
        return self.function(*inputs)


class Patches(nn.Module):  # type: ignore[misc]
    """Pixels as rows behind a learned one, each with a learned place added."""

    def __init__(self, rows: int, width: int, *, token: bool) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, width)) if token else None
        self.places = nn.Parameter(torch.zeros(1, rows, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, c, h, w) to (b, h w + 1, c)."""
        y = x.flatten(2).transpose(1, 2)
        if self.token is not None:
            y = torch.cat((self.token.expand(len(y), -1, -1), y), dim=1)
        return y + self.places


class Lstm(nn.Module):  # type: ignore[misc]
    """A recurrent layer whose states are let go."""

    def __init__(self, kind: type[nn.Module], width: int, hidden: int, both: bool) -> None:
        super().__init__()
        self.inner = kind(width, hidden, batch_first=True, bidirectional=both)

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, tokens, width) to (b, tokens, hidden)."""
        y: Tensor = self.inner(x)[0]
        return y


def _relu(op: pointwise.Relu, inputs: tuple[Shape, ...]) -> nn.Module:
    # never in place here: what enters a stage is a leaf, which nothing may overwrite
    return nn.LeakyReLU(op.slope) if op.slope else nn.ReLU()


def _pool(kind: type[nn.Module]) -> Made:
    def made(op: images.MaxPool2d, inputs: tuple[Shape, ...]) -> nn.Module:
        return kind(op.kernel_size, op.stride, op.padding, ceil_mode=op.ceil_mode)

    return made


def _convolution(op: images.Conv2d, inputs: tuple[Shape, ...]) -> nn.Module:
    sizes = (inputs[0][0], op.out_channels, op.kernel_size, op.stride, op.padding)
    return nn.Conv2d(*sizes, groups=op.groups, bias=op.bias)


def _summed(op: joins.Add, inputs: tuple[Shape, ...]) -> nn.Module:
    return Function(lambda first, *rest: sum(rest, first))


def _joined(op: joins.Concat, inputs: tuple[Shape, ...]) -> nn.Module:
    dim = 1 if len(inputs[0]) == 3 else -1
    return Function(lambda *parts: torch.cat(parts, dim=dim))


def _recurrent(op: texts.Lstm, inputs: tuple[Shape, ...]) -> nn.Module:
    kind = nn.LSTM if op.gates == 4 else nn.GRU
    return Lstm(kind, inputs[0][-1], op.hidden_size, op.bidirectional)


def _logits(op: texts.CrossEntropy, inputs: tuple[Shape, ...]) -> nn.Module:
    # the loss takes logits (b, s, V): a sample of one answer is a sequence of one
    return Function(lambda x: x.unsqueeze(1) if x.dim() == 2 else x)


def _answers(op: texts.MeanLoss, inputs: tuple[Shape, ...]) -> nn.Module:
    # a task is a row of logits, as wide as the widest: the loss is the mean over rows
    def rows(*logits: Tensor) -> Tensor:
        width = max(part.shape[-1] for part in logits)
        wide = [functional.pad(x, (0, width - x.shape[-1]), value=-math.inf) for x in logits]
        return torch.cat(wide, dim=1)

    return Function(rows)


MODULES: Mapping[type[Operation], Made] = {
    images.Conv2d: _convolution,
    images.BatchNorm2d: lambda op, ins: BatchNorm(ins[0][0], affine=op.affine),
    images.InstanceNorm2d: lambda op, ins: nn.InstanceNorm2d(ins[0][0], affine=op.affine),
    pointwise.Relu: _relu,
    pointwise.Sigmoid: lambda op, ins: nn.Sigmoid(),
    Pointwise: lambda op, ins: Function(getattr(functional, op.function)),
    Multiply: lambda op, ins: Function(lambda x, y: x * y),
    images.MaxPool2d: _pool(nn.MaxPool2d),
    images.AvgPool2d: _pool(nn.AvgPool2d),
    images.AdaptiveAvgPool2d: lambda op, ins: nn.AdaptiveAvgPool2d(op.output_size),
    joins.Add: _summed,
    joins.Scale: lambda op, ins: Function(lambda x, factors: x * factors),
    joins.Concat: _joined,
    joins.Flatten: lambda op, ins: nn.Flatten(1),
    images.Crop: lambda op, ins: Function(lambda x: x[:, :, op.rows :, op.columns :]),
    images.Upsample: lambda op, ins: nn.Upsample(scale_factor=op.factor, mode="bilinear"),
    images.Pad: lambda op, ins: nn.ZeroPad2d((0, op.columns, 0, op.rows)),
    pointwise.Dropout: lambda op, ins: nn.Dropout2d(op.p) if op.channels else nn.Dropout(op.p),
    texts.Dense: lambda op, ins: nn.Linear(ins[0][-1], op.out_features, bias=op.bias),
    texts.LayerNorm: lambda op, ins: nn.LayerNorm(ins[0][-1], bias=op.bias),
    texts.Gelu: lambda op, ins: nn.GELU(),
    texts.Patches: lambda op, ins: Patches(*op.shape(ins), token=op.class_token),
    texts.FirstRow: lambda op, ins: Function(lambda x: x[:, 0]),
    texts.SelfAttention: lambda op, ins: Heads(op),
    texts.AdditiveAttention: lambda op, ins: Additive(ins[0][-1]),
    texts.Embedding: lambda op, ins: Table(op),
    texts.Lstm: _recurrent,
    texts.CrossEntropy: _logits,
    texts.MeanLoss: _answers,
    Boxing: lambda op, ins: Change(op),
}
"""The module of each operation."""


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
        self.made = nn.ModuleDict({key_of(node.name): _module(graph, node) for node in nodes})

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
        """Let nodes that own no weight use their table's (see `executor.model.tokens`)."""
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


def check_graph(graph: Graph) -> None:
    """Refuse operations that have no module.

    Raises:
        ModelError: naming the node and its operation.
    """
    for node in graph.nodes:
        if type(node.operation) not in MODULES:
            kind = NAMES[type(node.operation)]
            raise ModelError(
                f"{graph.name}: node '{node.name}' is {kind}, which can be simulated but not run: "
                f"only its time is known; describe it by its operations"
            )


def check_cut(graph: Graph, cut: tuple[int, ...]) -> None:
    """Refuse a pipeline cut that several tensors cross, or one between users of a table.

    Raises:
        PlanError: naming the layer and the tensors, or the nodes.
    """
    ends = [0, *accumulate(cut)]
    apart = crosses(graph, (range(first, end) for first, end in pairwise(ends)))
    if apart is not None:
        raise PlanError(
            f"stage_layers={list(cut)}: nodes '{apart[0]}' and '{apart[1]}' of {graph.name} share "
            f"a table, but would be in different stages; use pp=1"
        )
    end = 0
    for size in cut[:-1]:
        end += size
        names = graph.crossing()[end - 1] if end else (INPUT,)
        if len(names) != 1:
            raise PlanError(
                f"stage_layers={list(cut)}: {len(names)} tensors ({', '.join(names)}) cross the "
                f"cut behind layer {end - 1} of {graph.name}, but a stage hands on one; cut "
                f"elsewhere"
            )


def without_dropout(graph: Graph) -> Graph:
    """This graph, with every dropout letting all through."""
    from dataclasses import replace

    nodes = tuple(
        replace(node, operation=replace(node.operation, p=0.0))
        if isinstance(node.operation, pointwise.Dropout)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _parts(graph: Graph, only: Collection[str]) -> tuple[tuple[Node, ...], ...]:
    """The layers of a graph with the nodes of these names alone."""
    return tuple(tuple(node for node in layer if node.name in only) for layer in graph.layers)


def _module(graph: Graph, node: Node) -> nn.Module:
    inputs = tuple(graph.shapes[name] for name in node.inputs)
    return MODULES[type(node.operation)](node.operation, inputs)


def key_of(name: str) -> str:
    """A node's name as part of a parameter's name, in which dots divide."""
    return name.replace(".", "_")
