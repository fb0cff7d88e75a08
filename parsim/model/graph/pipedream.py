"""PipeDream's profile of a model (`graph.txt`): layers with measured times, joined by edges.

    node5 -- Conv2d(64, 192, ...) -- forward_compute_time=3.1, backward_compute_time=6.2,
             activation_size=143327232.000, parameter_size=1229568.000
    <tab>node4 -- node5

Times are milliseconds and sizes bytes in fp32, both of one mini-batch, whose size the file does not
say: a sample of the graph is that mini-batch, unless somebody says how many it has. Nodes called
Input and sinks called __getitem__ take no part, as in PipeDream's own optimizer.

Source: Harlap et al. 2018 (arXiv:1806.03377); msr-fiddle/pipedream, commit 7db6a1c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from parsim.errors import ModelError, shown
from parsim.model.graph.pieces import first_apart, in_pieces, twice
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Measured

VALUE = 4
"""Bytes of an fp32 value."""
_FIRST = re.compile(r"^\s*node\d+ -- ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """One line of a profile: seconds and values of a mini-batch."""

    what: str
    forward: float
    backward: float
    values: int
    parameters: int


DEVICE = "the device of a profile of PipeDream"
"""What such nodes were timed on."""

COSTS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
"""What a node's line says: milliseconds, then bytes."""

MOST_COST = 1e15
"""The largest of them that may be true."""


def is_profile(text: str) -> bool:
    """Whether a text is such a profile rather than a model file."""
    return _FIRST.match(text) is not None


def read_profile(name: str, text: str, path: str) -> Graph:
    """The graph of a profile, every node a measured one.

    Raises:
        ModelError: a line cannot be read, a node stands there twice, or the edges have a circle
            or do not join all nodes.
    """
    layers, edges = _lines(text)
    sources, left_out = _sources(layers, edges), _left_out(layers, edges)
    nodes = [
        _node(node, layers[node], [source for source in sources[node] if source not in left_out])
        for node in _ordered(sources)
        if node not in left_out
    ]
    _check_whole([node.name for node in nodes], edges)
    first = next((layers[node].values for node in layers if node in left_out), 1)
    return Graph(
        name=name.removesuffix(".txt").removesuffix(".graph"),
        input_shape=(max(first, 1),),
        nodes=tuple(nodes),
        device=DEVICE,
        path=path,
    )


def per_sample(graph: Graph, sizes: tuple[int, ...]) -> Graph:
    """The graph of one sample, of a profile whose mini-batch had these sizes: samples first.

    Raises:
        ModelError: a size of the profile is not that of so many samples.
    """
    batch, shape = sizes[0], sizes[1:] or (max(graph.input_shape[0] // sizes[0], 1),)
    _check_batch("the input", graph.input_shape[0], batch)
    if graph.input_shape[0] > 1 and prod(shape) * batch != graph.input_shape[0]:
        words = "x".join(map(str, sizes))
        raise ModelError(f"the input has {graph.input_shape[0]:,} values, which are not {words}")
    nodes = tuple(replace(node, operation=_divided(node, batch)) for node in graph.nodes)
    device = f"{DEVICE} in mini-batches of {batch}"
    return replace(graph, input_shape=shape, nodes=nodes, device=device)


def _divided(node: Node, batch: int) -> Measured:
    """A node's measured operation for one sample of a mini-batch."""
    measured = node.operation
    if not isinstance(measured, Measured):
        raise ModelError(f"{node.name} was not measured")
    _check_batch(node.name, measured.output[0], batch)
    return replace(
        measured,
        output=(max(measured.output[0] // batch, 1),),
        forward_s=measured.forward_s / batch,
        backward_s=measured.backward_s / batch,
        kept_values=measured.kept_values // batch,
    )


def _check_batch(where: str, values: int, batch: int) -> None:
    """Refuse a mini-batch that does not divide what was profiled, but for a single number."""
    if values > 1 and values % batch:
        raise ModelError(
            f"{where} has {values:,} values, which are no {batch} samples; give the mini-batch "
            "that was profiled"
        )


def _sources(
    layers: Mapping[str, Profiled], edges: Sequence[tuple[str, str]]
) -> dict[str, list[str]]:
    """What each node takes, in the order of the file."""
    sources: dict[str, list[str]] = {node: [] for node in layers}
    for source, target in edges:
        if source not in layers or target not in layers:
            raise ModelError(f"edge {shown(source)} -- {shown(target)} names no node of the file")
        sources[target].append(source)
    return sources


def _left_out(layers: Mapping[str, Profiled], edges: Sequence[tuple[str, str]]) -> set[str]:
    """Nodes that are no layers: inputs, and parts of outputs that nothing reads."""
    used = {source for source, _ in edges}
    return {
        node
        for node, layer in layers.items()
        if layer.what.startswith("Input")
        or (layer.what.startswith("__getitem__") and node not in used)
    }


def _check_whole(names: list[str], edges: list[tuple[str, str]]) -> None:
    """Refuse a graph in pieces."""
    number = {name: position for position, name in enumerate(names)}
    pairs = [(number[a], number[b]) for a, b in edges if a in number and b in number]
    apart = first_apart(len(names), pairs)
    if apart is not None:
        raise ModelError(in_pieces(names[apart], names[0]))


def _node(name: str, layer: Profiled, inputs: list[str]) -> Node:
    operation = Measured(
        output=(max(layer.values, 1),),
        forward_s=layer.forward,
        backward_s=layer.backward,
        parameters=layer.parameters,
        kept_values=layer.values,
    )
    return Node(name=name, operation=operation, inputs=tuple(inputs) or (INPUT,))


def _lines(text: str) -> tuple[dict[str, Profiled], list[tuple[str, str]]]:
    layers: dict[str, Profiled] = {}
    edges = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        parts = line.strip().split(" -- ")
        if line.startswith("\t") and len(parts) == 2:
            edges.append((parts[0], parts[1]))
        elif len(parts) == 3:
            if parts[0] in layers:
                raise ModelError(f"line {number}: {twice(parts[0])}")
            layers[parts[0]] = _profiled(number, parts[1], parts[2])
        else:
            raise ModelError(f"line {number} is neither a node nor an edge: '{shown(line)}'")
    return layers, edges


def _profiled(number: int, what: str, figures: str) -> Profiled:
    cells = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[-+.\deE]+)", figures))
    try:
        costs = {name: _sum(cells[name]) for name in COSTS}
    except (KeyError, ValueError) as reason:
        raise ModelError(f"line {number}: {reason} is missing or no number") from None
    for name, value in costs.items():
        if not 0.0 <= value <= MOST_COST:
            raise ModelError(f"line {number}: {name}={value:g} is not between 0 and {MOST_COST:g}")
    forward, backward, outputs, parameters = costs.values()
    return Profiled(
        what=what,
        forward=1e-3 * forward,
        backward=1e-3 * backward,
        values=round(outputs / VALUE),
        parameters=round(parameters / VALUE),
    )


def _sum(cell: str) -> float:
    """A size, or the sum of a list of sizes: an LSTM has several outputs."""
    return sum(float(size) for size in cell.strip("[]").split(";"))


def _ordered(sources: Mapping[str, list[str]]) -> list[str]:
    """Nodes behind all that they take, in the order of the file where that leaves a choice."""
    done: dict[str, None] = {}
    waiting = list(sources)
    while waiting:
        ready = [node for node in waiting if all(source in done for source in sources[node])]
        if not ready:
            raise ModelError(f"the edges around {shown(waiting[0])} go in a circle")
        done.update(dict.fromkeys(ready))
        waiting = [node for node in waiting if node not in done]
    return list(done)
