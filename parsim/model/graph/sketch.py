"""Writes a graph down line by line, as a network's definition reads.

draw = Sketch("net", (3, 224, 224))
x = draw.conv(INPUT, "conv1", 64, 7, stride=2, padding=3)
x = draw.relu(draw.batch_norm(x, "bn1"), "relu")
"""

from __future__ import annotations

from parsim.model.graph.images import AvgPool2d, BatchNorm2d, Conv2d, MaxPool2d
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.pointwise import Add, Concat, Relu
from parsim.model.graph.record import Graph, Node
from parsim.model.graph.texts import Dense
from parsim.model.networks import Pair


def pair(size: int | Pair) -> Pair:
    """A square's two sides, or both as they are."""
    return (size, size) if isinstance(size, int) else size


class Sketch:
    """Nodes so far; every method adds one and returns its name."""

    def __init__(self, name: str, input_shape: Shape) -> None:
        self.name = name
        self.input_shape = input_shape
        self.nodes: list[Node] = []
        self.ends: list[str] = []

    def node(self, operation: Operation, name: str, *inputs: str) -> str:
        """Add an operation that reads some nodes; its name."""
        self.nodes.append(Node(name=name, operation=operation, inputs=inputs))
        return name

    def conv(
        self,
        x: str,
        name: str,
        channels: int,
        kernel: int | Pair,
        *,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        groups: int = 1,
        bias: bool = False,
    ) -> str:
        """Add a convolution, square where one number is given."""
        operation = Conv2d(
            out_channels=channels,
            kernel_size=pair(kernel),
            stride=pair(stride),
            padding=pair(padding),
            groups=groups,
            bias=bias,
        )
        return self.node(operation, name, x)

    def batch_norm(self, x: str, name: str) -> str:
        """Add a batch normalisation."""
        return self.node(BatchNorm2d(), name, x)

    def relu(self, x: str, name: str) -> str:
        """Add a ReLU in place."""
        return self.node(Relu(), name, x)

    def max_pool(self, x: str, name: str, kernel: int, stride: int, padding: int = 0) -> str:
        """Add a maximum over square windows."""
        operation = MaxPool2d(kernel_size=pair(kernel), stride=pair(stride), padding=pair(padding))
        return self.node(operation, name, x)

    def avg_pool(self, x: str, name: str, kernel: int, stride: int, padding: int = 0) -> str:
        """Add a mean over square windows."""
        operation = AvgPool2d(kernel_size=pair(kernel), stride=pair(stride), padding=pair(padding))
        return self.node(operation, name, x)

    def dense(self, x: str, name: str, features: int, *, bias: bool = True) -> str:
        """Add a matrix product of each row."""
        return self.node(Dense(out_features=features, bias=bias), name, x)

    def add(self, name: str, *inputs: str) -> str:
        """Add a sum of nodes."""
        return self.node(Add(), name, *inputs)

    def concat(self, name: str, *inputs: str) -> str:
        """Put tensors side by side."""
        return self.node(Concat(), name, *inputs)

    def end_layer(self, name: str) -> str:
        """Let a layer end behind this node, whatever else crosses there."""
        self.ends.append(name)
        return name

    def graph(self) -> Graph:
        """The graph so far."""
        return Graph(
            name=self.name,
            input_shape=self.input_shape,
            nodes=tuple(self.nodes),
            ends=tuple(self.ends),
        )
