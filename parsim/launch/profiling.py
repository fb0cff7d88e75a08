"""Asks the executor for the graph of a module, and reads one from a trace of torch's profiler."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parsim.errors import InputError, ModelError, shown
from parsim.files import read_json
from parsim.launch.ranks import ask, require_torch
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import NEAR, graph_text, read_graph
from parsim.model.graph.pipedream import DEVICE, per_sample
from parsim.model.graph.record import Graph
from parsim.model.graph.traces.events import is_trace
from parsim.model.graph.traces.graph import read_trace
from parsim.report.writing import check_writable, write_text


def profile(
    target: str, inputs: Sequence[str], out: Path, *, hooks: bool = False
) -> dict[str, Any]:
    """Write the model file of `FILE.py:FUNCTION` and return what there is to say of it.

    `inputs` are what forward takes: `4x16:int64` by position, `mask=4x16` by name.

    Raises:
        InputError: torch is missing, there is no such function, or the file cannot be written.
    """
    require_torch("profiling a module")
    check_writable(out)
    words = [target, *(f"--input={text}" for text in inputs), *(["--hooks"] if hooks else [])]
    document: dict[str, Any] = json.loads(ask("executor.profiling", words).stdout)
    write_text(out, document.pop("text"))
    return {**document, "file": str(out)}


def profile_trace(trace: Path, sizes: str | None, out: Path) -> dict[str, Any]:
    """Write the model file of a torch profiler's trace and return what there is to say of it.

    Args:
        trace: JSON as `export_chrome_trace` writes it, also packed by gzip.
        sizes: the batch's, `16x3x224x224`; by default those that the first layer took.
        out: the model file.

    Raises:
        InputError: there is no such trace, it holds no training step, or a file cannot be written.
    """
    check_writable(out)
    batch = None if sizes is None else _sizes(sizes)
    document = read_json(trace, error=ModelError, near=NEAR)
    if not is_trace(document):
        raise ModelError(f"{trace}: is no trace of torch's profiler: it has no traceEvents")
    try:
        traced = read_trace(trace.name, document, str(trace), batch)
    except ModelError as reason:
        raise ModelError(f"{trace}: {reason}") from None
    return _written(traced.graph, traced.notes, out)


def profile_layers(profiled: Path, sizes: str, out: Path) -> dict[str, Any]:
    """Write the model file of PipeDream's `graph.txt`, whose mini-batch had the sizes.

    Raises:
        InputError: there is no such profile, its mini-batch is another, or a file cannot be
            written.
    """
    check_writable(out)
    graph = read_graph(profiled)
    if graph.device != DEVICE:
        raise ModelError(f"{profiled}: is no graph.txt of PipeDream's profiler")
    batch = _sizes(sizes)
    try:
        graph = per_sample(graph, batch)
    except ModelError as reason:
        raise ModelError(f"{profiled}: {reason}") from None
    note = f"seconds are those of a mini-batch of {batch[0]}, shared out to its samples"
    return _written(graph, (note,), out)


def _written(graph: Graph, notes: tuple[str, ...], out: Path) -> dict[str, Any]:
    """Write a model file and say what it holds."""
    write_text(out, graph_text(graph, notes))
    model = build_graph(graph)
    return {
        "schema_version": 1,
        "name": graph.name,
        "parameters": model.parameters,
        "layers": model.num_layers,
        "operations": len(graph.nodes),
        "notes": list(notes),
        "file": str(out),
    }


def _sizes(sizes: str) -> tuple[int, ...]:
    if re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", sizes) is None:
        raise InputError(f"--input {shown(sizes)}: give BATCHxSIZES, for example 32x3x224x224")
    return tuple(map(int, sizes.split("x")))
