"""What a device does in a micro-batch under a layout, in order, and what it has of the model.

Operations between two exchanges are one piece of compute; the gradients of parameters that are
whole on some axes are summed in buckets (`parsim/layout/laid.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.kept.graph_backward import backward_beyond
from parsim.layout.boxing import share
from parsim.layout.candidates import OnMesh, inputs_on
from parsim.layout.laid import Bucket, Laid, buckets
from parsim.layout.mesh import local_shape, parts_of
from parsim.model.graph.build import operators_of
from parsim.model.graph.losses import loss_nodes
from parsim.model.graph.record import Node
from parsim.plan import PlanTable
from parsim.sim.layouts.exchanges import MeshExchange
from parsim.sim.layouts.prices import NodePasses, NodePrices
from parsim.strategy.layout import BACKWARD, EXCHANGE, FORWARD, REDUCE, LayoutPart


@dataclass(slots=True)
class Pieces:
    """Parts of a micro-batch in order, and by the names of their prices seconds and bytes."""

    laid: Laid
    parts: list[LayoutPart] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (FORWARD, BACKWARD, EXCHANGE, REDUCE)}
    )
    exchanges: dict[str, list[MeshExchange]] = field(
        default_factory=lambda: {EXCHANGE: [], REDUCE: []}
    )

    def compute(self, name: str, seconds: float) -> None:
        """Append compute, to the piece before it where nothing is between them."""
        last = next((p for p in reversed(self.parts) if p.price != REDUCE), None)
        if last is not None and last.price == name and self.parts[-1] is last:
            self.seconds[name][-1] += seconds
            return
        self.parts.append(LayoutPart(price=name, row=len(self.seconds[name])))
        self.seconds[name].append(seconds)

    def meet(self, name: str, exchange: MeshExchange) -> None:
        """Append a collective."""
        groups = self.laid.mesh.groups(exchange.axes)
        row = len(self.seconds[name])
        self.parts.append(LayoutPart(price=name, row=row, groups=groups, route=exchange.kind))
        self.seconds[name].append(exchange.seconds)
        self.exchanges[name].append(exchange)

    def prices(self, name: str) -> Array:
        """Seconds of a price's rows."""
        return np.array(self.seconds[name] or [0.0])

    def sizes(self, name: str) -> Array:
        """Bytes of a price's rows, S of nccl-tests."""
        return np.array([exchange.size for exchange in self.exchanges[name]] or [0.0])


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Writes the pieces of a laid-out graph; `bucket` are values that close a bucket."""

    laid: Laid
    prices: NodePrices
    bucket: float
    beside: bool
    pieces: Pieces = field(init=False)
    filled: dict[str | None, list[Bucket]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pieces = Pieces(self.laid)
        for bucket in buckets(self.laid, self.bucket, beside=self.beside):
            self.filled.setdefault(bucket.behind, []).append(bucket)

    def write(self) -> Pieces:
        """Forward through all operations, and back."""
        nodes = self.laid.graph.nodes
        passes = [self._passes(node) for node in nodes]
        ahead, back = self._shares(passes)
        for node, seconds in zip(nodes, ahead, strict=True):
            self._forward(node, seconds)
        for node, seconds in zip(reversed(nodes), reversed(back), strict=True):
            self._backward(node, seconds)
        self._reduce(None)
        return self.pieces

    def _way(self, node: Node) -> OnMesh:
        return self.laid.signatures[node.name]

    def _passes(self, node: Node) -> NodePasses:
        way = self._way(node)
        shared = parts_of(inputs_on(way, 0), 0, self.laid.mesh.sizes)
        return self.prices.passes(self.prices.operators(node, way), self.prices.samples // shared)

    def _shares(self, passes: Sequence[NodePasses]) -> tuple[list[float], list[float]]:
        """Seconds of each operation, which together are those of the whole pass."""
        ahead, back = self.prices.totals(passes)
        grown, between = self.prices.factors, self.prices.between
        first, second = ahead * grown[0] + between, back * grown[1] + between
        alone = sum(part.ahead for part in passes), sum(part.back for part in passes)
        return (
            [part.ahead * first / alone[0] for part in passes],
            [part.back * second / alone[1] for part in passes],
        )

    def _changes(self, node: Node) -> Iterator[tuple[MeshExchange | None, MeshExchange | None]]:
        for number, name in enumerate(node.inputs):
            steps = self.laid.changes.get((node.name, number), ())
            yield from self.prices.exchanges.changes(name, self.laid.layout(name), steps)

    def _forward(self, node: Node, seconds: float) -> None:
        for ahead, _ in self._changes(node):
            if ahead is not None:
                self.pieces.meet(EXCHANGE, ahead)
        for exchange in self.prices.exchanges.inside(node, self._way(node))[0]:
            self.pieces.meet(EXCHANGE, exchange)
        self.pieces.compute(FORWARD, seconds)

    def _backward(self, node: Node, seconds: float) -> None:
        for exchange in self.prices.exchanges.inside(node, self._way(node))[1]:
            self.pieces.meet(EXCHANGE, exchange)
        self.pieces.compute(BACKWARD, seconds)
        for _, back in reversed(list(self._changes(node))):
            if back is not None:
                self.pieces.meet(EXCHANGE, back)
        self._reduce(node.name)

    def _reduce(self, behind: str | None) -> None:
        """Sum the gradients of the buckets that an operation fills, or of the rest."""
        for bucket in self.filled.get(behind, ()):
            exchange = self.prices.exchanges.reduce(bucket.axes, bucket.values)
            self.pieces.meet(REDUCE, exchange)


def pieces_of(laid: Laid, prices: NodePrices, *, bucket: float, beside: bool) -> Pieces:
    """What a device does in a micro-batch.

    Args:
        laid: the graph on its mesh.
        prices: of its operations and exchanges.
        bucket: values that close a bucket of gradients.
        beside: whether buckets are summed while backward goes on.
    """
    return _Writer(laid=laid, prices=prices, bucket=bucket, beside=beside).write()


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Shares of a whole model with so many `samples`, those of one device by itself."""

    laid: Laid
    prices: NodePrices
    samples: int

    @cached_property
    def parameters(self) -> float:
        """A device's parameters over all."""
        local = whole = 0.0
        for node in self.laid.graph.nodes:
            for parameter, layout in self.laid.parameters(node):
                local += parameter.values * share(layout, self.laid.mesh.sizes)
                whole += parameter.values
        return local / max(whole, 1.0)

    @property
    def kept(self) -> float:
        """What the operations of a device keep, as its graph has them, over the whole model's."""
        owner, whole = self.laid.owners, operators_of(self.laid.graph).values()
        local = sum(
            self.prices.kept(tuple(part), self._samples(owner[name]))
            for name, part in operators_of(self.laid.local).items()
        )
        every = sum(self.prices.kept(tuple(part), self.samples) for part in whole)
        return local / max(every, 1.0)

    @property
    def beyond(self) -> float:
        """Bytes that a device's backward needs at its highest moment beyond what is kept."""
        job = self.prices.evaluation.step.job

        def table_of(name: str) -> tuple[PlanTable, int]:
            samples = self._samples(self.laid.owners[name])
            return self.prices.table(samples), samples

        return backward_beyond(self.laid.local, job.software, table_of).size

    def _samples(self, node: str) -> int:
        return self.prices.samples // self.laid.batch_parts(node)

    @property
    def logits(self) -> float:
        """A device's logits over those of its own samples."""
        pairs = [self._logits(node) for node in loss_nodes(self.laid.graph)]
        return sum(local for local, _ in pairs) / max(sum(whole for _, whole in pairs), 1)

    def _logits(self, node: Node) -> tuple[int, int]:
        """Logits of a loss on a device, and of its own samples."""
        shape, sizes = self.laid.graph.shapes[node.inputs[0]], self.laid.mesh.sizes
        read = inputs_on(self.laid.signatures[node.name], 0)
        samples = self.prices.samples // parts_of(read, 0, sizes)
        return prod(local_shape(shape, read, sizes)) * samples, prod(shape) * self.samples
