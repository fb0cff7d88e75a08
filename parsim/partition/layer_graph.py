"""A model as a graph of measured layers, and the reader of PipeDream's `graph.txt`.

    node1 -- Conv2d(...) -- forward_compute_time=1.2, backward_compute_time=2.4,
             activation_size=64.0, parameter_size=32.0           (one line)
    <TAB>node1 -- node2

Times are milliseconds in the file, sizes bytes; a size may be a list `[a; b]`, which is its sum.
Nodes called `Input...` and sinks called `__getitem__...` are left out, as PipeDream's optimizer
does: loading data is no layer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from pathlib import Path

from parsim.errors import InputError, shown
from parsim.files import read_text
from parsim.model.graph.pieces import first_apart, in_pieces, twice

_COSTS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_SHOWN = 8
"""Layers of a circle that are named; of a longer one its first and its last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNode:
    """A layer: seconds of its forward and backward together, bytes of its output and weights."""

    name: str
    description: str
    seconds: float
    activations: float
    parameters: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraph:
    """Layers in the file's order, and which of them take the output of which (by number)."""

    layers: tuple[LayerNode, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def seconds(self) -> float:
        """All layers one behind the other."""
        return sum(layer.seconds for layer in self.layers)

    @property
    def parameters(self) -> float:
        """Bytes of all weights."""
        return sum(layer.parameters for layer in self.layers)


def read_layer_graph(path: Path) -> LayerGraph:
    """Read and check a `graph.txt`.

    Raises:
        InputError: a line is wrong (with `file:line`), the graph has a circle, or not all layers
            hang together.
    """
    nodes: dict[str, LayerNode] = {}
    lines: list[tuple[int, str, str]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.strip().split(" -- ")
        if line.startswith("\t") and len(words) == 2:
            lines.append((number, words[0], words[1]))
        elif len(words) == 3 and not line.startswith("\t"):
            node = _node(words, f"{path}:{number}")
            if node.name in nodes:
                raise InputError(f"{path}:{number}: {twice(node.name)}")
            nodes[node.name] = node
        elif line.strip():
            raise InputError(
                f"{path}:{number}: '{shown(line.strip())}' is no line of a graph; expected "
                f"'<id> -- <layer> -- forward_compute_time=.., ..' or '<tab><id> -- <id>'"
            )
    for number, first, second in lines:
        for name in (first, second):
            if name not in nodes:
                raise InputError(f"{path}:{number}: there is no node {shown(name)}")
    return _checked(path, nodes, [(first, second) for _, first, second in lines])


def _node(words: list[str], where: str) -> LayerNode:
    """One node's line: its four costs must be finite numbers from 0 on."""
    values = {}
    for pair in re.split(r",\s*", words[2].strip()):
        name, _, text = pair.partition("=")
        values[name] = text
    costs = [_number(values.get(name), name, where) for name in _COSTS]
    return LayerNode(
        name=words[0],
        description=words[1],
        seconds=(costs[0] + costs[1]) / 1000.0,
        activations=costs[2],
        parameters=costs[3],
    )


def _number(text: str | None, name: str, where: str) -> float:
    """A number, or the sum of a list `[a; b]`."""
    try:
        parts = [float(part) for part in (text or "").strip("[] ").split(";")]
    except ValueError:
        parts = [-1.0]
    total = sum(parts)
    if not isfinite(total) or min(parts) < 0.0:
        raise InputError(
            f"{where}: {name}={shown(text or '')} is not a finite number from 0 on, or a list "
            f"[a; b]"
        )
    return total


def _checked(path: Path, nodes: dict[str, LayerNode], edges: list[tuple[str, str]]) -> LayerGraph:
    """The graph without inputs and unused outputs, in one piece and without a circle."""
    sources = {first for first, _ in edges}
    dropped = {
        name
        for name, node in nodes.items()
        if node.description.startswith("Input")
        or (node.description.startswith("__getitem__") and name not in sources)
    }
    kept = {name: node for name, node in nodes.items() if name not in dropped}
    number = {name: i for i, name in enumerate(kept)}
    pairs = tuple((number[a], number[b]) for a, b in edges if a in kept and b in kept)
    if not kept:
        raise InputError(f"{path}: has no layers")
    _check_order(path, list(kept), pairs)
    _check_whole(path, list(kept), pairs)
    return LayerGraph(layers=tuple(kept.values()), edges=pairs)


def _check_order(path: Path, names: list[str], pairs: tuple[tuple[int, int], ...]) -> None:
    """Refuse layers that wait for one another in a circle."""
    before: dict[int, set[int]] = {i: set() for i in range(len(names))}
    for first, second in pairs:
        before[second].add(first)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = _arrows([shown(names[i]) for i in error.args[1]])
        raise InputError(f"{path}: layers wait for one another in a circle: {circle}") from None


def _arrows(circle: list[str]) -> str:
    """A circle of layers, whose first stands last again; of a long one its two ends alone."""
    if len(circle) <= _SHOWN:
        return " -> ".join(circle)
    ends = [*circle[: _SHOWN // 2], "...", *circle[-_SHOWN // 2 :]]
    return f"{' -> '.join(ends)} ({len(circle) - 1} layers)"


def _check_whole(path: Path, names: list[str], pairs: tuple[tuple[int, int], ...]) -> None:
    """Refuse a graph in pieces: no order of stages would join them."""
    apart = first_apart(len(names), pairs)
    if apart is not None:
        raise InputError(f"{path}: {in_pieces(names[apart], names[0])}")
