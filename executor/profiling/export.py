"""A module's exported graph as parsim's: known operations as such, others with measured seconds."""

from __future__ import annotations

import sysconfig
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import fx, nn

from executor.profiling.batch import Batch
from executor.profiling.graph_writer import Writer, word_of
from executor.profiling.seconds import line, seconds_of
from executor.profiling.sizes import Sizes, shapes_of
from parsim.errors import InputError
from parsim.model.graph.record import Graph, Node
from parsim.model.graph.texts import CrossEntropy, Measured


def exported(model: nn.Module, batch: Batch) -> fx.GraphModule:
    """The module as operations on tensors, which enter in the order of the batch's.

    Raises:
        InputError: torch cannot export it; the message names what it stumbled over.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attributes that recurrent modules set meanwhile
            program = torch.export.export(model, batch.given, dict(batch.named), strict=False)
    except Exception as reason:  # torch raises many kinds
        lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
        message = lines[0] if lines else "no message"
        where = users_line(reason)
        raise InputError(f"torch.export: {type(reason).__name__}: {message}{where}") from None
    return program.module()


def users_line(reason: BaseException) -> str:
    """Where an exception passed the user's code last: ` (net.py:12 in forward)`; else nothing."""
    libraries = (str(Path(torch.__file__).parents[1]), str(Path(__file__).parents[1]), "<")
    standard = sysconfig.get_paths()["stdlib"]
    frames = [
        frame
        for frame in traceback.extract_tb(reason.__traceback__)
        if not frame.filename.startswith((*libraries, standard))
    ]
    if not frames:
        return ""
    file, line_number, function, _ = frames[-1]
    return f" ({Path(file).name}:{line_number} in {function})"


def graph_of(
    name: str,
    module: fx.GraphModule,
    batch: Batch,
    device: str,
    again: tuple[fx.GraphModule, Batch] | None = None,
) -> tuple[Graph, list[str]]:
    """Run an exported module and return its graph, which ends with a loss over classes.

    `again` is the same module exported with another batch. What is measured is also named, by the
    words of torch.
    """
    sizes = Sizes(batch=batch.size)
    if again is not None:
        sizes = Sizes(batch=batch.size, other=again[1].size, shapes=shapes_of(again[0]))
    writer = Writer(module, sizes, batch.names)
    with writer.stored:
        writer.run(*batch.tensors, enable_io_processing=False)
    if not writer.nodes:
        raise InputError(f"{name}: nothing in it depends on its input")
    nodes = _with_seconds(writer, module, batch, again)
    shape, further = batch.shape, writer.further()
    graph = Graph(name=name, input_shape=shape, nodes=tuple(nodes), further_inputs=further)
    if len(graph.output_shape) <= 2 and graph.output_shape[-1] > 1:
        nodes.append(Node(name="loss", operation=CrossEntropy(), inputs=(nodes[-1].name,)))
    used = device if writer.measured else ""
    graph = replace(graph, nodes=tuple(nodes), device=used)
    return graph, [word_of(n) for n in writer.measured.values()]


def _with_seconds(
    writer: Writer,
    module: fx.GraphModule,
    batch: Batch,
    again: tuple[fx.GraphModule, Batch] | None,
) -> list[Node]:
    """A writer's nodes, what is measured with its seconds and with what it keeps for backward."""
    names = [n.name for n in writer.measured.values()]
    kept = writer.stored.values(names, batch.size)
    timings = [(batch.size, seconds_of(module, names, batch))]
    if again is not None:
        timings.append((again[1].size, seconds_of(again[0], names, again[1])))
    nodes = []
    for node in writer.nodes:
        if node.name in writer.measured and isinstance(node.operation, Measured):
            n = writer.measured[node.name].name
            points = [(size, seconds[n]) for size, seconds in timings]
            node = replace(node, operation=_timed(node.operation, points, kept[n]))
        nodes.append(node)
    return nodes


def _timed(
    operation: Measured, points: Sequence[tuple[int, tuple[float, float]]], kept: int
) -> Measured:
    """The operation with lines through its seconds at one or two batches, and what it keeps."""
    forward, backward = (
        line(*((size, seconds[way]) for size, seconds in points)) for way in (0, 1)
    )
    return replace(
        operation,
        forward_s=forward.sample,
        forward_call_s=forward.call,
        backward_s=backward.sample,
        backward_call_s=backward.call,
        kept_values=kept,
    )
