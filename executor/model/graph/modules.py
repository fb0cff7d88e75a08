"""The torch module of every operation that a graph may have, and what a graph must be for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.model.batch_norm import BatchNorm
from executor.model.boxing import Change
from executor.model.graph.tokens import Additive, Heads, Table, crosses
from parsim.errors import ModelError, PlanError
from parsim.layout.laid import Boxing
from parsim.model.graph import images, pointwise, sequences, texts
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.operations import NAMES
from parsim.model.graph.pointwise import Multiply, Pointwise
from parsim.model.graph.record import INPUT, Graph, Node

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


def _summed(op: pointwise.Add, inputs: tuple[Shape, ...]) -> nn.Module:
    return Function(lambda first, *rest: sum(rest, first))


def _joined(op: pointwise.Concat, inputs: tuple[Shape, ...]) -> nn.Module:
    dim = 1 if len(inputs[0]) == 3 else -1
    return Function(lambda *parts: torch.cat(parts, dim=dim))


def _recurrent(op: sequences.Lstm, inputs: tuple[Shape, ...]) -> nn.Module:
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
    images.LocalResponseNorm: lambda op, ins: nn.LocalResponseNorm(op.size),
    pointwise.Relu: _relu,
    pointwise.Sigmoid: lambda op, ins: nn.Sigmoid(),
    Pointwise: lambda op, ins: Function(getattr(functional, op.function)),
    Multiply: lambda op, ins: Function(lambda x, y: x * y),
    images.MaxPool2d: _pool(nn.MaxPool2d),
    images.AvgPool2d: _pool(nn.AvgPool2d),
    images.AdaptiveAvgPool2d: lambda op, ins: nn.AdaptiveAvgPool2d(op.output_size),
    pointwise.Add: _summed,
    pointwise.Scale: lambda op, ins: Function(lambda x, factors: x * factors),
    pointwise.Concat: _joined,
    pointwise.Flatten: lambda op, ins: nn.Flatten(1),
    images.Crop: lambda op, ins: Function(lambda x: x[:, :, op.rows :, op.columns :]),
    images.Upsample: lambda op, ins: nn.Upsample(scale_factor=op.factor, mode="bilinear"),
    images.Pad: lambda op, ins: nn.ZeroPad2d((0, op.columns, 0, op.rows)),
    pointwise.Dropout: lambda op, ins: nn.Dropout2d(op.p) if op.channels else nn.Dropout(op.p),
    texts.Dense: lambda op, ins: nn.Linear(ins[0][-1], op.out_features, bias=op.bias),
    texts.LayerNorm: lambda op, ins: nn.LayerNorm(ins[0][-1], bias=op.bias),
    texts.Gelu: lambda op, ins: nn.GELU(),
    texts.Patches: lambda op, ins: Patches(*op.shape(ins), token=op.class_token),
    texts.FirstRow: lambda op, ins: Function(lambda x: x[:, 0]),
    sequences.SelfAttention: lambda op, ins: Heads(op),
    sequences.AdditiveAttention: lambda op, ins: Additive(ins[0][-1]),
    texts.Embedding: lambda op, ins: Table(op),
    sequences.Lstm: _recurrent,
    texts.CrossEntropy: _logits,
    texts.MeanLoss: _answers,
    Boxing: lambda op, ins: Change(op),
}
"""The module of each operation."""


def module_of(graph: Graph, node: Node) -> nn.Module:
    """A node's module, by its operation and the shapes of its inputs."""
    inputs = tuple(graph.shapes[name] for name in node.inputs)
    return MODULES[type(node.operation)](node.operation, inputs)


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
    nodes = tuple(
        replace(node, operation=replace(node.operation, p=0.0))
        if isinstance(node.operation, pointwise.Dropout)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)
