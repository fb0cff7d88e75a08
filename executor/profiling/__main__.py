"""`python -m executor.profiling FILE.py:FUNCTION --input SIZES`: the model file on stdout."""

from __future__ import annotations

import argparse
import json
import platform
import sys

import torch

from executor.profiling.export import exported, graph_of
from executor.profiling.hooks import hooked
from executor.profiling.module import built, example
from parsim.errors import ParsimError
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import graph_text


def main() -> int:
    """Profile, and print the file's text with what is to be said of it as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--input", required=True)
    parser.add_argument("--hooks", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    try:
        document = profiled(asked.target, asked.input, hooks=asked.hooks)
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(document))
    return 0


def profiled(target: str, sizes: str, *, hooks: bool) -> dict[str, object]:
    """The model file's text, and notes.

    Raises:
        InputError: no module, or one that fails.
    """
    model = built(target)
    batch = example(sizes, model)
    name = target.rpartition(":")[0].rpartition("/")[2].removesuffix(".py")
    device = f"cpu: one thread of {platform.processor() or platform.machine()}"
    notes: list[str] = []
    graph = None
    if not hooks:
        try:
            graph, writer = graph_of(name, exported(model, batch), batch, device)
            if writer.measured:
                words = ", ".join(sorted(set(writer.measured)))
                share = f"{len(writer.measured)} of {len(graph.nodes)} operations"
                notes.append(f"{share} have no formula and are timed on {device}: {words}")
        except ParsimError as reason:
            notes.append(f"{reason}; modules are timed one after another instead (hooks)")
    if graph is None:
        graph = hooked(name, model, batch, device)
        notes.append(f"all of {len(graph.nodes)} modules are timed on {device}")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    read_back = build_graph(graph)
    if read_back.parameters != parameters:
        notes.append(
            f"{read_back.parameters:,} parameters in the file, {parameters:,} in the module"
        )
    return {
        "schema_version": 1,
        "name": name,
        "parameters": read_back.parameters,
        "layers": read_back.num_layers,
        "operations": len(graph.nodes),
        "notes": notes,
        "text": graph_text(graph, tuple(notes)),
    }


if __name__ == "__main__":
    sys.exit(main())
