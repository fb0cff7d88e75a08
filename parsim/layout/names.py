"""Named dimensions of a graph's tensors, and a layout that puts them on axes of a mesh.

    layout: {batch: rows, ffn: cols, heads: cols, vocab: cols}

    batch      of every activation            channels   of images, and rows made of them
    sequence   tokens of a text               heads      of queries, keys and values
    ffn, model widths of products in turn     vocab      rows of tables, and what a loss reads

A tensor with a named dimension is cut along it on the axis of that name. So a product whose output
is named goes by columns, one whose input is by inputs, and a table whose rows are by rows. Where
an operation cannot be cut so (a norm over its width), its input is put together before it; where a
weight has one name on both sides (a convolution's channels) its outputs are cut.

Source: Mesh-TensorFlow (Shazeer et al. 2018, arXiv:1811.02084), sections 3 to 5: a layout is a map
from dimensions to axes, legal where no tensor has two dimensions on one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parsim.errors import PlanError, alternatives, shown
from parsim.layout.candidates import OnMesh, Options, Stated, divided, stated_options
from parsim.layout.mesh import REPLICAS, Mesh, S
from parsim.layout.signature import Signature
from parsim.model.graph import images, pointwise, sequences, texts
from parsim.model.graph.operation import IMAGE, TEXT, Operation
from parsim.model.graph.record import INPUT, Graph, Node

DIMS = ("batch", "sequence", "channels", "ffn", "model", "heads", "vocab")
"""Names that a layout may use."""
Names = tuple[str, ...]
"""Names of a tensor's dimensions, the batch first; "" for one that has none."""
BY_BATCH = (
    *(sequences.Lstm, sequences.AdditiveAttention),
    *(texts.Measured, pointwise.View, pointwise.Copy),
)
"""Operations that are cut along the batch alone."""
_FUNCTIONS = (
    *(pointwise.Relu, pointwise.Sigmoid, pointwise.Pointwise, pointwise.Multiply),
    *(pointwise.Dropout, texts.Gelu),
)


def named_dims(graph: Graph) -> dict[str, Names]:
    """The names of each tensor's dimensions."""
    shape = graph.input_shape
    first = ("batch", "sequence") if len(shape) == 1 else ("batch", *[""] * len(shape))
    names: dict[str, Names] = {INPUT: first}
    readers = _readers(graph)
    for node in graph.nodes:
        names[node.name] = _named(graph, node, names, readers)
    return names


def _named(
    graph: Graph, node: Node, names: Mapping[str, Names], readers: Mapping[str, list[Node]]
) -> Names:
    before, op = names[node.inputs[0]], node.operation
    if isinstance(op, texts.Dense):
        return (*before[:-1], _width(node, before[-1], readers))
    if isinstance(op, texts.Embedding):
        return ("batch", "sequence", "model")
    if isinstance(op, sequences.SelfAttention):
        return before if len(node.inputs) == 3 else (*before[:-1], "heads")
    if isinstance(op, images.Conv2d):
        return ("batch", "channels", "", "")
    if isinstance(op, pointwise.Flatten | texts.FirstRow):
        return ("batch", before[1] if isinstance(op, pointwise.Flatten) else before[-1])
    if isinstance(op, texts.Patches):
        return ("batch", "", before[1])
    return _kept(op, before, len(graph.shapes[node.name]))


def _kept(op: Operation, before: Names, dims: int) -> Names:
    """The names of an operation that changes no dimension, or those that it cannot cut."""
    if isinstance(op, texts.CrossEntropy | texts.MeanLoss):
        return ("",) * (1 + dims)
    if isinstance(op, BY_BATCH):
        return ("batch", *("",) * dims)
    if isinstance(op, pointwise.Concat):
        joined = 1 if dims >= IMAGE else dims
        return tuple("" if dim == joined else name for dim, name in enumerate(before))
    return before


def _width(node: Node, before: str, readers: Mapping[str, list[Node]]) -> str:
    """What a product's outputs are called, by who reads them."""
    ends = [reader.operation for reader in _behind(node, readers)]
    if any(isinstance(op, sequences.SelfAttention) for op in ends):
        return "heads"
    if any(isinstance(op, texts.CrossEntropy) for op in ends):
        return "vocab"
    inner = bool(ends) and all(isinstance(op, texts.Dense) for op in ends)
    return "ffn" if inner and before != "ffn" else "model"


def _behind(node: Node, readers: Mapping[str, list[Node]]) -> list[Node]:
    """Who reads a tensor, functions of each value passed over."""
    behind = []
    for reader in readers.get(node.name, []):
        passed = isinstance(reader.operation, _FUNCTIONS)
        behind += _behind(reader, readers) if passed else [reader]
    return behind


def _readers(graph: Graph) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return readers


def laid_by_names(options: Options, layout: Mapping[str, str]) -> dict[str, tuple[OnMesh, ...]]:
    """The one signature of every operation that a layout of names gives.

    Raises:
        PlanError: a name or an axis that there is not, two dimensions of a tensor on one axis, an
            axis that does not divide a dimension.
    """
    names = named_dims(options.graph)
    _check(options.mesh, names, layout)
    by_axis = [{dim for dim, axis in layout.items() if axis == name} for name in options.mesh.names]
    return {
        node.name: (_signatures(options, node, names, by_axis),) for node in options.graph.nodes
    }


def _check(mesh: Mesh, names: Mapping[str, Names], layout: Mapping[str, str]) -> None:
    there = [dim for dim in DIMS if any(dim in dims for dims in names.values())]
    axes = [axis for axis in mesh.names if axis != REPLICAS]
    for dim, axis in layout.items():
        if dim not in there:
            rest = alternatives(dim, there, label="this model's dimensions")
            raise PlanError(f"layout: '{shown(dim)}' is no dimension of the model{rest}")
        if axis not in axes:
            rest = alternatives(axis, axes, label="axes of the mesh")
            raise PlanError(f"layout.{dim}: '{shown(axis)}' is no axis of the mesh{rest}")
    for tensor, dims in names.items():
        _check_tensor(f"'{tensor}'", dims, layout)


def _check_tensor(what: str, dims: Sequence[str], layout: Mapping[str, str]) -> None:
    """Refuse two dimensions of one tensor on one axis."""
    taken: dict[str, str] = {}
    for dim in dims:
        axis = layout.get(dim)
        if axis is None:
            continue
        if taken.setdefault(axis, dim) != dim:
            raise PlanError(
                f"layout: {taken[axis]} and {dim} are both on axis {axis}, but {what} has both "
                f"dimensions; put one of them on another axis, or leave it out"
            )


def _signatures(
    options: Options,
    node: Node,
    names: Mapping[str, Names],
    by_axis: Sequence[set[str]],
) -> OnMesh:
    chosen = []
    for axis, here in enumerate(by_axis):
        every = options.on_axis(node, axis)
        alone = len(every) == 1
        chosen.append(every[0] if alone else _on_axis(node, every, names, here))
    way = tuple(chosen)
    _check_weight(node, names, by_axis, options.mesh)
    if not options.fits(node, way):
        raise PlanError(f"layout: {divided(options, node, way)}")
    return way


def _check_weight(
    node: Node, names: Mapping[str, Names], by_axis: Sequence[set[str]], mesh: Mesh
) -> None:
    """Refuse both sides of a product's weight on one axis, where their names differ."""
    if not isinstance(node.operation, texts.Dense):
        return
    layout = {dim: axis for axis, dims in zip(mesh.names, by_axis, strict=True) for dim in dims}
    sides = (names[node.inputs[0]][-1], names[node.name][-1])
    _check_tensor(f"the weight of '{node.name}'", sides, layout)


def _on_axis(
    node: Node, every: Sequence[Signature], names: Mapping[str, Names], here: set[str]
) -> Signature:
    """The signature that cuts what is named on an axis; none cut where there is none such."""
    dims = names[node.name]
    wanted = [S(dim) for dim, name in enumerate(dims) if name in here]
    for signature in every:
        if signature.output in wanted:
            return signature
    word = _contracted(node, names[node.inputs[0]], here)
    whole = every[-1]
    return next((signature for signature in every if signature.word == word), whole)


def _contracted(node: Node, before: Names, here: set[str]) -> str:
    """What an operation goes by where a dimension that it sums over is on the axis."""
    op = node.operation
    if isinstance(op, texts.Dense) and before[-1] in here:
        return "inputs"
    if isinstance(op, texts.Embedding) and "vocab" in here:
        return "table rows"
    if isinstance(op, texts.CrossEntropy):
        if "batch" in here:
            return "batch"
        if before[-1] in here:
            return "vocabulary"
        return "rows" if len(before) > TEXT and before[1] in here else "whole"
    if isinstance(op, texts.MeanLoss):
        return "summands"
    return "whole"


def options_of(
    options: Options, names: Mapping[str, str] | None, stated: Stated | None
) -> dict[str, tuple[OnMesh, ...]]:
    """The signatures that every operation may have; a layout by names leaves one of each.

    Raises:
        PlanError: what is stated cannot be.
    """
    if names is not None:
        return laid_by_names(options, names)
    return stated_options(options, stated or {})
