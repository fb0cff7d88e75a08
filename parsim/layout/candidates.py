"""What each operation of a graph may have on a mesh: all that sizes allow, less what is stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

from parsim.errors import ModelError, PlanError, alternatives, shown
from parsim.layout.mesh import REPLICAS, Mesh, NdSbp, Sbp, local_shape, read_sbp
from parsim.layout.signature import Signature
from parsim.layout.signatures import Shapes, listed, local_operation, signatures
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.operations import NAMES
from parsim.model.graph.record import Graph, Node
from parsim.model.graph.sequences import SelfAttention
from parsim.model.graph.texts import Dense

OnMesh = tuple[Signature, ...]
"""An operation's signature on each axis of a mesh."""
Stated = Mapping[str, Mapping[str, str]]
"""What users say by operation: of its input, weight and output, each as "B,S(1)"."""
COUNTS: Mapping[int, tuple[int, ...]] = {1: (3,), 2: (1, 2), 3: (1, 1, 1)}
"""How many of queries, keys and values each input of an attention holds, by number of inputs."""
LISTED_BELOW = 65
"""Sizes of an axis below which a message lists those that are allowed."""
PARTS = ("input", "weight", "output")
"""Tensors of an operation that a user may state."""


def inputs_on(on_mesh: OnMesh, number: int) -> NdSbp:
    """The layout of one of an operation's inputs."""
    return tuple(signature.inputs[number] for signature in on_mesh)


def output_on(on_mesh: OnMesh) -> NdSbp:
    """The layout of an operation's output."""
    return tuple(signature.output for signature in on_mesh)


@dataclass(frozen=True, slots=True)
class Options:
    """The signatures of a graph's operations on a mesh, each operation's by its name."""

    graph: Graph
    mesh: Mesh
    joined: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "joined", joined_tensors(self.graph))

    def of(self, node: Node) -> tuple[OnMesh, ...]:
        """All that sizes allow: replicas share out the samples, other axes as they like."""
        on_axes = tuple(self.on_axis(node, axis) for axis in range(len(self.mesh.axes)))
        return _fitting(node.operation, *self.shapes(node), on_axes, self.mesh.sizes)

    def on_axis(self, node: Node, axis: int) -> tuple[Signature, ...]:
        """What an operation may have on one axis, whatever its size."""
        shapes = self.shapes(node)
        every = signatures(node.operation, *shapes)
        if not self._by_heads(node):
            every = tuple(option for option in every if option.word != "heads")
        if self.mesh.names[axis] == REPLICAS:
            words = ("batch", "summands", "whole")
            first = next(o for word in words for o in every if o.word == word)
            return (replace(first, inside=""),)  # replicas have batches of their own
        return every

    def shapes(self, node: Node) -> tuple[tuple[Shape, ...], Shape]:
        """A sample's inputs and output."""
        return tuple(self.graph.shapes[name] for name in node.inputs), self.graph.shapes[node.name]

    def fits(self, node: Node, way: OnMesh) -> bool:
        """Whether the axes divide what they split, and the parts make the part of the output."""
        return fits(node.operation, *self.shapes(node), way, self.mesh.sizes)

    def _by_heads(self, node: Node) -> bool:
        """Whether queries, keys and values come from products that nothing else reads."""
        if not isinstance(node.operation, SelfAttention):
            return True
        return all(name in self.joined for name in node.inputs)


@lru_cache(maxsize=4_096)
def _fitting(
    operation: Operation,
    inputs: Shapes,
    output: Shape,
    on_axes: tuple[tuple[Signature, ...], ...],
    sizes: tuple[int, ...],
) -> tuple[OnMesh, ...]:
    """Combinations that sizes allow; equal operations are looked at once."""
    return tuple(way for way in product(*on_axes) if fits(operation, inputs, output, way, sizes))


def fits(
    operation: Operation, inputs: Shapes, output: Shape, way: OnMesh, sizes: tuple[int, ...]
) -> bool:
    """Whether axes divide what they split, and the operation makes its part of its parts."""
    try:
        local = local_operation(operation, way, sizes)
        parts = tuple(
            local_shape(shape, inputs_on(way, number), sizes) for number, shape in enumerate(inputs)
        )
        made = local.shape(parts)
        return made == local_shape(output, output_on(way), sizes) and min(made) > 0
    except (ModelError, ValueError, IndexError):
        return False


def joined_tensors(graph: Graph) -> dict[str, int]:
    """Products that make queries, keys and values of one attention: how many stand side by side.

    A device has a part of each of them, not of the row that they stand in.
    """
    users, nodes = graph.users(), {node.name: node for node in graph.nodes}
    joined: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node.operation, SelfAttention):
            counts = COUNTS[len(node.inputs)]
            for name, count in zip(node.inputs, counts, strict=True):
                source = nodes.get(name)
                if source and isinstance(source.operation, Dense) and users[name] == 1:
                    joined[name] = count
    return joined


def stated_options(options: Options, stated: Stated) -> dict[str, tuple[OnMesh, ...]]:
    """The signatures of every operation that agree with what a user states.

    Raises:
        PlanError: an operation, a tensor or a layout that there is not; what the operation cannot
            have; an axis that does not divide.
    """
    known = {node.name for node in options.graph.nodes}
    for name in stated:
        if name not in known:
            rest = alternatives(name, known)
            raise PlanError(f"signatures: '{shown(name)}' is no operation of the model{rest}")
    return {
        node.name: _agreeing(options, node, stated.get(node.name, {}))
        for node in options.graph.nodes
    }


def _agreeing(options: Options, node: Node, given: Mapping[str, str]) -> tuple[OnMesh, ...]:
    every = options.of(node)
    read = {part: _read(options, node, part, text) for part, text in given.items()}
    left = tuple(way for way in every if all(_has(way, *entry) for entry in read.items()))
    if not left:
        raise PlanError(f"signatures.{node.name}: {_why(options, node, read)}")
    return left


def _read(options: Options, node: Node, part: str, text: str) -> NdSbp:
    """A stated layout on all axes of the mesh; of replicas nobody states any."""
    if part not in PARTS:
        rest = alternatives(part, PARTS)
        raise PlanError(f"signatures.{node.name}: '{shown(part)}' is unknown{rest}")
    axes = [name for name in options.mesh.names if name != REPLICAS]
    try:
        return read_sbp(text, len(axes))
    except PlanError as reason:
        raise PlanError(f"signatures.{node.name}.{part}: {reason}") from None


def _has(way: OnMesh, part: str, stated: NdSbp) -> bool:
    """Whether signatures have what is stated; the mesh's last axes are those that users name."""
    named = way[len(way) - len(stated) :]
    return all(_one_has(signature, part, sbp) for signature, sbp in zip(named, stated, strict=True))


def _one_has(signature: Signature, part: str, sbp: object) -> bool:
    if part == "input":
        return all(entry == sbp for entry in signature.inputs)
    return bool(getattr(signature, part) == sbp)


def _why(options: Options, node: Node, read: Mapping[str, NdSbp]) -> str:
    """What is wrong with a stated layout: no such signature, or sizes that are not divided."""
    op = NAMES[type(node.operation)]
    for axis, name in enumerate(options.mesh.names):
        if name == REPLICAS:
            continue
        every = options.on_axis(node, axis)
        position = axis - len(options.mesh.names)
        stated = {part: layout[position] for part, layout in read.items()}
        if any(all(_one_has(s, part, sbp) for part, sbp in stated.items()) for s in every):
            continue
        wanted = ", ".join(f"{part} {sbp}" for part, sbp in stated.items())
        rest = _why_no_sum(op, stated, every)
        return f"{wanted} on axis {name} is no signature of {op}{rest}; allowed: {listed(every)}"
    ways = (
        way
        for way in product(*(options.on_axis(node, axis) for axis in range(len(options.mesh.axes))))
        if all(_has(way, *entry) for entry in read.items())
    )
    return divided(options, node, next(ways))


def _why_no_sum(op: str, stated: Mapping[str, Sbp], every: Sequence[Signature]) -> str:
    """More words where an input is stated as summands, and the operation is not linear."""
    summands = any(sbp.kind == "P" for part, sbp in stated.items() if part != "output")
    if not summands or any(signature.word == "summands" for signature in every):
        return ""
    return f"; {op} of a sum is not the sum of {op}, so its input must be whole or split"


def divided(options: Options, node: Node, way: OnMesh) -> str:
    """The message where axes do not divide what signatures split, with sizes that do."""
    for (name, size), signature in zip(options.mesh.axes, way, strict=True):
        shapes = options.shapes(node)
        usable = [
            n for n in range(1, LISTED_BELOW) if fits(node.operation, *shapes, (signature,), (n,))
        ]
        if size not in usable:
            return (
                f"axis {name}={size} does not divide '{node.name}' by {signature.word}; allowed: "
                f"{', '.join(map(str, usable[:16]))}"
            )
    axes = " x ".join(str(size) for _, size in options.mesh.axes)
    return f"axes of {axes} together do not divide '{node.name}'; use smaller ones"
