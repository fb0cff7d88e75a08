"""A graph laid out on a mesh: what each operation has, changes, a device's graph, its sums.

    relu5 (S(0)) ──▶ all-gather ──▶ fc6 (B x S(1) -> S(1)) ──▶ all-gather ──▶ fc7 ──▶ ...

The graph of one device has the operations with its parts of their sizes, and each change of layout
as an operation of its own, so that what it computes, keeps and holds is counted as of any graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from parsim.layout.boxing import Step
from parsim.layout.candidates import OnMesh, inputs_on, joined_tensors, output_on
from parsim.layout.mesh import REPLICAS, B, Mesh, NdSbp, S, local_shape, parts_of
from parsim.layout.parameters import Parameter, laid_parameters
from parsim.layout.signatures import local_operation
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.record import INPUT, Graph, Node

Changes = Mapping[tuple[str, int], tuple[Step, ...]]
"""Steps between what is and what an operation wants, by its name and the number of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxing(Operation):
    """A step of a change of layout; `output` is the shape of a sample's part behind it.

    Where several tensors are `joined` side by side in the last dimension, each is cut by itself.
    """

    output: Shape
    step: Step
    joined: int = 1

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The shape of the part behind the step."""
        return self.output


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A graph, a mesh, the signatures of every operation, and the changes of their inputs."""

    graph: Graph
    mesh: Mesh
    signatures: Mapping[str, OnMesh]
    changes: Changes

    def layout(self, tensor: str) -> NdSbp:
        """What devices have of a tensor."""
        return entering(self.mesh) if tensor == INPUT else output_on(self.signatures[tensor])

    @property
    def nothing(self) -> NdSbp:
        """The layout of what no axis splits."""
        return (B,) * len(self.mesh.axes)

    @cached_property
    def joined(self) -> Mapping[str, int]:
        """Tensors that stand side by side in one, by its name."""
        return joined_tensors(self.graph)

    def batch_parts(self, node: str) -> int:
        """Among how many devices an operation shares the samples."""
        on_mesh = self.signatures[node]
        return parts_of(inputs_on(on_mesh, 0), 0, self.mesh.sizes)

    @cached_property
    def local(self) -> Graph:
        """The graph of one device, cut into layers where the whole one is."""
        return Graph(
            name=self.graph.name,
            input_shape=self.graph.input_shape,
            nodes=tuple(node for whole in self.graph.nodes for node in self._nodes(whole)),
            ends=tuple(layer[-1].name for layer in self.graph.layers),
        )

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """The operation that each change of the local graph stands before; others are their own."""
        return {node.name: whole.name for whole in self.graph.nodes for node in self._nodes(whole)}

    def _nodes(self, node: Node) -> Iterator[Node]:
        """The changes of an operation's inputs, then its part."""
        sources = []
        for number, source in enumerate(node.inputs):
            for boxing in self._boxings(node, number, source):
                yield boxing
                source = boxing.name
            sources.append(source)
        local = local_operation(node.operation, self.signatures[node.name], self.mesh.sizes)
        yield Node(name=node.name, operation=local, inputs=tuple(sources))

    def _boxings(self, node: Node, number: int, source: str) -> Iterator[Node]:
        here, shape = self.layout(source), self.graph.shapes[source]
        joined = self.joined.get(source, 1)
        last = source
        for position, step in enumerate(self.changes.get((node.name, number), ())):
            here = (*here[: step.axis], step.target, *here[step.axis + 1 :])
            part = local_shape(shape, here, self.mesh.sizes)
            name = f"{node.name}.input{number}.{position}"
            yield Node(
                name=name,
                operation=Boxing(output=part, step=step, joined=joined),
                inputs=(last,),
            )
            last = name

    def parameters(self, node: Node) -> Iterator[tuple[Parameter, NdSbp]]:
        """The parameters of an operation with their layouts."""
        shapes = tuple(self.graph.shapes[name] for name in node.inputs)
        output = self.graph.shapes[node.name]
        return laid_parameters(node.operation, shapes, output, self.signatures[node.name])

    def reduced(self, node: Node) -> dict[tuple[int, ...], int]:
        """Values of a device's gradients by the axes over which they are summands."""
        values: dict[tuple[int, ...], int] = {}
        for parameter, layout in self.parameters(node):
            axes = whole_axes(layout, self.mesh)
            part = parameter.values
            for sbp, n in zip(layout, self.mesh.sizes, strict=True):
                part //= n if sbp.splits else 1
            values[axes] = values.get(axes, 0) + part
        return {axes: count for axes, count in values.items() if axes}


def whole_axes(layout: NdSbp, mesh: Mesh) -> tuple[int, ...]:
    """The axes of more than one device on which a parameter is whole, its gradient summands."""
    sizes = zip(layout, mesh.sizes, strict=True)
    return tuple(axis for axis, (sbp, n) in enumerate(sizes) if sbp == B and n > 1)


def entering(mesh: Mesh) -> NdSbp:
    """The layout of what enters a model: replicas have samples of their own, a mesh's devices all.

    What a device does not need of them it leaves out, which is free.
    """
    return tuple(S(0) if name == REPLICAS else B for name in mesh.names)


Entry = tuple[str, str]
"""An operation and one of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are summed over `axes` together, of so many `values` on a device.

    `behind` is the operation whose backward fills it; None: it is sent behind the last one.
    """

    axes: tuple[int, ...]
    entries: tuple[Entry, ...]
    values: int
    behind: str | None


def buckets(laid: Laid, size: float, *, beside: bool) -> Iterator[Bucket]:
    """The buckets of a device's gradients, which the simulator prices and the executor sends.

        backward     | fc6 | conv5 | conv4 | conv3 | conv2 | conv1 |
        axes (rows)        | conv5  conv4  |               | conv3 conv2 conv1 |
        axes (rows, cols)                                  | norms |

    Gradients that are summands on the same axes share buckets, in the order in which backward fills
    them. One is full behind the operation whose gradients bring it to its size; the rest goes
    behind the last operation.

    Args:
        laid: the graph on its mesh.
        size: values that close a bucket.
        beside: whether full ones are sent while backward goes on; else all gradients of some axes
            are one bucket behind it.
    """
    entries: dict[tuple[int, ...], list[Entry]] = {}
    values: dict[tuple[int, ...], int] = {}
    for node in reversed(laid.graph.nodes):
        reduced = laid.reduced(node)
        for parameter, layout in laid.parameters(node):
            axes = whole_axes(layout, laid.mesh)
            if axes:
                entries.setdefault(axes, []).append((node.name, parameter.name))
        for axes, count in reduced.items():
            values[axes] = values.get(axes, 0) + count
            if beside and values[axes] >= size:
                filled = tuple(entries.pop(axes))
                yield Bucket(axes=axes, entries=filled, values=values.pop(axes), behind=node.name)
    for axes, rest in entries.items():
        yield Bucket(axes=axes, entries=tuple(rest), values=values[axes], behind=None)
