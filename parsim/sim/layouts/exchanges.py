"""Seconds and bytes of what devices of a mesh exchange: changes, gradients, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import Groups, Ranks, placed_groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.layer.tensor_exchanges import statistics_bytes
from parsim.layout.boxing import Step, chain, collective_bytes, share
from parsim.layout.candidates import OnMesh, inputs_on, output_on
from parsim.layout.mesh import Mesh, NdSbp, local_shape, parts_of
from parsim.model.graph.build import asked_names
from parsim.model.graph.record import Graph, Node

FP32 = 4.0
SOFTMAX = 3
"""All-reduces of a loss whose rows are split by vocabulary: maximum, target's logit, sum."""


class MeshExchange(NamedTuple):
    """A collective on some axes of a mesh: bytes (S of nccl-tests), and seconds."""

    kind: CollectiveKind
    axes: tuple[int, ...]
    size: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Exchanges:
    """Prices of exchanges of a graph's tensors, `samples` of all devices together.

    `value` and `gradient` are bytes of an activation's value and of a gradient's as it is sent.
    """

    system: System
    graph: Graph
    mesh: Mesh
    samples: int
    value: float
    gradient: float
    _seconds: dict[tuple[str, tuple[int, ...], float], float] = field(default_factory=dict)
    _changed: dict[tuple[float, bool, NdSbp, NdSbp], float] = field(default_factory=dict)
    _chains: dict[tuple[NdSbp, NdSbp, float], tuple[Step, ...]] = field(default_factory=dict)

    @cached_property
    def asked(self) -> frozenset[str]:
        """Tensors whose gradient backward needs."""
        return asked_names(self.graph)

    def of(self, kind: CollectiveKind, axes: tuple[int, ...], size: float) -> MeshExchange:
        """A collective of S bytes among the ranks that differ on some axes alone."""
        key = (kind, axes, size)
        if key not in self._seconds:
            seconds = collective_time(self.system, kind, size, self.where(axes))
            self._seconds[key] = float(seconds[0])
        return MeshExchange(kind, axes, size, self._seconds[key])

    def where(self, axes: tuple[int, ...]) -> Groups:
        """Where the ranks that differ on some axes are: neighbouring axes count as one."""
        runs = _runs(axes)
        sizes = [prod(self.mesh.sizes[axis] for axis in run) for run in runs]
        strides = [self.mesh.stride(run[-1]) for run in runs]
        row = (sizes[0], strides[0]) if len(runs) == 2 else (1, 1)
        ranks = Ranks(
            size=_column(sizes[-1]),
            stride=_column(strides[-1]),
            rows=_column(row[0]),
            row_stride=_column(row[1]),
        )
        return placed_groups(self.system, ranks, _column(self.mesh.ranks))

    def steps(self, tensor: str, source: NdSbp, target: NdSbp) -> tuple[Step, ...]:
        """The cheapest chain of changes, its gradient's counted where backward needs it."""
        if source == target:
            return ()
        whole = self.tensor_bytes(tensor)
        asked = tensor in self.asked
        key = (source, target, whole if asked else -whole)
        if key not in self._chains:

            def price(step: Step, before: float, after: float) -> float:
                both = self._step(step, whole, before, after, asked=asked)
                return sum(exchange.seconds for exchange in both if exchange)

            self._chains[key] = chain(source, target, self.mesh.sizes, price)
        return self._chains[key]

    def changes(
        self, tensor: str, source: NdSbp, steps: Sequence[Step]
    ) -> Iterator[tuple[MeshExchange | None, MeshExchange | None]]:
        """What each step of a chain exchanges, forward and backward."""
        whole, asked, here = self.tensor_bytes(tensor), tensor in self.asked, source
        for step in steps:
            there = (*here[: step.axis], step.target, *here[step.axis + 1 :])
            sizes = self.mesh.sizes
            yield self._step(step, whole, share(here, sizes), share(there, sizes), asked=asked)
            here = there

    def change_seconds(self, tensor: str, source: NdSbp, target: NdSbp) -> float:
        """Seconds of a change of layout and of its gradient's."""
        key = (self.tensor_bytes(tensor), tensor in self.asked, source, target)
        if key not in self._changed:
            pairs = self.changes(tensor, source, self.steps(tensor, source, target))
            self._changed[key] = sum(part.seconds for pair in pairs for part in pair if part)
        return self._changed[key]

    def _step(
        self, step: Step, whole: float, before: float, after: float, *, asked: bool
    ) -> tuple[MeshExchange | None, MeshExchange | None]:
        return (
            self._one_way(step, whole, before, after),
            self._one_way(step.backward, whole, after, before) if asked else None,
        )

    def _one_way(
        self, step: Step, whole: float, before: float, after: float
    ) -> MeshExchange | None:
        kind = step.collective
        if kind is None or self.mesh.sizes[step.axis] == 1:
            return None
        return self.of(kind, (step.axis,), collective_bytes(step, whole, before, after))

    def tensor_bytes(self, name: str) -> float:
        """Bytes of a tensor of all samples together."""
        return prod(self.graph.shapes[name]) * self.samples * self.value

    def inside(self, node: Node, way: OnMesh) -> tuple[list[MeshExchange], list[MeshExchange]]:
        """What devices exchange within an operation, forward and backward.

        Statistics of batch normalisation: those of each device gathered, and their sums reduced.
        A loss split by vocabulary: three fp32 values a row reduced (`executor/model/loss.py`).
        """
        sizes = self.mesh.sizes
        axes = tuple(a for a, s in enumerate(way) if s.inside and sizes[a] > 1)
        if not axes:
            return [], []
        if way[axes[0]].inside == "softmax":
            read, shape = inputs_on(way, 0), self.graph.shapes[node.inputs[0]]
            rows = prod(local_shape(shape, read, sizes)[:-1]) * self.samples
            size = FP32 * (rows // parts_of(read, 0, sizes))
            return [self.of("all_reduce", axes, size)] * SOFTMAX, []
        ranks = prod(sizes[axis] for axis in axes)
        channels = local_shape(self.graph.shapes[node.name], output_on(way), sizes)[0]
        forward, backward = statistics_bytes(channels)
        gathered = self.of("all_gather", axes, forward * ranks)
        return [gathered], [self.of("all_reduce", axes, backward)]

    def reduce(self, axes: tuple[int, ...], values: float) -> MeshExchange:
        """The all-reduce of so many gradients over axes."""
        return self.of("all_reduce", axes, values * self.gradient)


def _column(value: int) -> NDArray[np.int64]:
    return np.array([value], dtype=np.int64)


def _runs(axes: tuple[int, ...]) -> list[list[int]]:
    """Axes in runs of neighbours."""
    runs: list[list[int]] = []
    for axis in sorted(axes):
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs
