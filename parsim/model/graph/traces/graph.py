"""A training step that torch's profiler recorded, as a chain of measured layers.

What runs between operators is in no layer: Python, and waiting. Branches are in no trace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from parsim.errors import ModelError
from parsim.model.graph.operation import Shape
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Measured
from parsim.model.graph.traces.events import MODULE, Clock, calls, read_events
from parsim.model.graph.traces.passes import Layer, batch_of, last_pass, parameters_of, sample_of
from parsim.units import format_seconds

LONGEST_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """The graph of a trace, and what is to be said of it."""

    graph: Graph
    notes: tuple[str, ...]


def read_trace(
    name: str, document: Mapping[str, object], path: str = "", batch: Shape | None = None
) -> Traced:
    """The layers of a trace's last forward and backward, a sample's share of each.

    Args:
        name: the file's name.
        document: what the file holds.
        path: where it is.
        batch: shape of the batch; by default that of what the first layer took.

    Raises:
        ModelError: an event has no time, there is no training step, or there are no shapes.
    """
    events = read_events(document)
    layers, passes = last_pass(calls(events))
    recorded = batch_of(layers, batch)
    clock = Clock(events)
    device = _device(document, on_device=clock.on_device)
    graph = Graph(
        name=name.split(".", maxsplit=1)[0] or "trace",
        input_shape=recorded[1:] or (1,),
        nodes=_nodes(layers, clock, recorded[0]),
        device=f"{device}, with torch's profiler",
        path=path,
    )
    return Traced(graph=graph, notes=_notes(graph, clock, recorded[0], passes))


def _nodes(layers: list[Layer], clock: Clock, batch: int) -> tuple[Node, ...]:
    """A chain: what a layer makes is what the next one takes, and the last one makes the loss."""
    outputs = [sample_of(layer.forward[0], batch) for layer in layers[1:]] + [(1,)]
    names = _names(layers)
    return tuple(
        Node(
            name=name,
            operation=Measured(
                output=output,
                forward_s=clock.seconds(layer.forward) / batch,
                backward_s=clock.seconds(layer.backward) / batch,
                parameters=parameters_of(layer),
                kept_values=prod(output),
            ),
            inputs=(source,),
        )
        for name, source, layer, output in zip(
            names, [INPUT, *names], layers, outputs, strict=False
        )
    )


def _names(layers: list[Layer]) -> list[str]:
    """The module's name, or the operator's, with a number where it is there before."""
    used: dict[str, None] = {INPUT: None}
    counts: Counter[str] = Counter()
    for layer in layers:
        call = layer.forward[0]
        title = call.module.name.removeprefix(MODULE) if call.module else call.top.name
        base = re.sub(r"\W+", "_", title.removeprefix("aten::"))[:LONGEST_NAME] or "layer"
        name = base
        while name in used:
            counts[base] += 1
            name = f"{base}_{counts[base] + 1}"
        used[name] = None
    return list(used)[1:]


def _device(document: Mapping[str, object], *, on_device: bool) -> str:
    devices = document.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    name = first.get("name") if isinstance(first, dict) else None
    if not on_device:
        return "the CPU of a trace"
    return name[:LONGEST_NAME] if isinstance(name, str) else "the device of a trace"


def _notes(graph: Graph, clock: Clock, batch: int, passes: int) -> tuple[str, ...]:
    """What was measured of the step, and what of it is left out."""
    operations = [node.operation for node in graph.nodes if isinstance(node.operation, Measured)]
    forward = batch * sum(operation.forward_s for operation in operations)
    backward = batch * sum(operation.backward_s for operation in operations)
    if forward + backward == 0.0:
        raise ModelError(
            "has no kernel that an operator of forward or backward launched, as when a CUDA graph "
            "is replayed; record the step without"
        )
    kind = "kernels" if clock.on_device else "operators"
    notes = [
        f"{kind} of a batch of {batch} took {format_seconds(forward)} forward and "
        f"{format_seconds(backward)} backward on {graph.device}; what ran between them is left out",
        "a trace has no branches: its layers are taken as a chain, each keeping what it makes",
        "parameters are those whose gradients backward added up; frozen ones are not known",
    ]
    if passes > 1:
        notes.append(f"the last of {passes} forwards with their backward is taken")
    if clock.collectives:
        notes.append(f"{format_seconds(clock.collectives)} of collectives are left out")
    return tuple(notes)
