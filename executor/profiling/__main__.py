"""`python -m executor.profiling FILE.py:FUNCTION --input SIZES`: the model file on stdout."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from executor.devices.machine import use_one_thread
from executor.faults.parent import command
from executor.profiling.batch import Batch
from executor.profiling.export import exported, graph_of
from executor.profiling.hooks import hooked
from executor.profiling.inputs import batch_of
from executor.profiling.sizes import same_nodes
from parsim.errors import InputError, ParsimError, did_you_mean, shown
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import graph_text
from parsim.model.graph.record import Graph


def built(target: str) -> nn.Module:
    """Call the function of `FILE.py:FUNCTION` and return the module that it builds.

    Raises:
        InputError: no such file or function, it fails, or it returns something else.
    """
    path, _, name = target.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"'{shown(target)}' must be FILE.py:FUNCTION, such as net.py:build_model")
    function = getattr(_loaded(Path(path)), name, None)
    if not callable(function):
        near = did_you_mean(name, [n for n in vars(_loaded(Path(path))) if not n.startswith("_")])
        raise InputError(f"{path} has no function '{shown(name)}'{near}")
    try:
        model = function()
    except Exception as reason:  # whatever the user's code raises
        raise InputError(f"{target} failed: {type(reason).__name__}: {reason}") from None
    if not isinstance(model, nn.Module):
        raise InputError(f"{target} returned {type(model).__name__}; it must return a torch module")
    return model.train()


def _loaded(path: Path) -> Any:  # noqa: ANN401 - a module of the user's
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location("profiled", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as reason:  # whatever the user's code raises
        raise InputError(f"{path}: {type(reason).__name__}: {reason}") from None
    return module


def main() -> int:
    """Profile, and print the file's text with what is to be said of it as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--input", required=True, action="append")
    parser.add_argument("--hooks", action="store_true")
    asked = parser.parse_args()
    return command(lambda: _work(asked))


def _work(asked: argparse.Namespace) -> None:
    use_one_thread()
    with redirect_stdout(sys.stderr):  # the user's code may print; the document is alone there
        document = profiled(asked.target, asked.input, hooks=asked.hooks)
    sys.stdout.write(json.dumps(document))


def profiled(target: str, inputs: Sequence[str], *, hooks: bool) -> dict[str, object]:
    """The model file's text, and notes; `inputs` are the texts of `--input`.

    Raises:
        InputError: no module, or one that fails.
    """
    model = built(target)
    batch = batch_of(target, inputs, model)
    name = target.rpartition(":")[0].rpartition("/")[2].removesuffix(".py")
    notes: list[str] = []
    parameters = sum(parameter.numel() for parameter in model.parameters())
    graph = replace(_graph(name, model, batch, notes, hooks), profiled_parameters=parameters)
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


def _graph(name: str, model: nn.Module, batch: Batch, notes: list[str], hooks: bool) -> Graph:
    """The module's graph as torch exports it; by hooks where that fails or they are asked for."""
    device = f"cpu: one thread of {platform.processor() or platform.machine()}"
    if not hooks:
        try:
            return _of_export(name, model, batch, device, notes)
        except ParsimError as reason:
            notes.append(f"{reason}; modules are timed one after another instead (hooks)")
    return _of_hooks(name, model, batch, device, notes)


def _of_export(name: str, model: nn.Module, batch: Batch, device: str, notes: list[str]) -> Graph:
    """The exported graph, timed with two batches where the module takes both."""
    module, other, again = exported(model, batch), batch.another(), None
    try:
        second = exported(model, other)
        again = (second, other) if same_nodes(module, second) else None
    except ParsimError:
        pass
    graph, measured = graph_of(name, module, batch, device, again)
    if measured:
        words = ", ".join(sorted(set(measured)))
        share = f"{len(measured)} of {len(graph.nodes)} operations"
        notes.append(f"{share} have no formula and are timed on {device}: {words}")
        notes.append(_batches(batch, batch.other_size if again else None))
    return graph


def _of_hooks(name: str, model: nn.Module, batch: Batch, device: str, notes: list[str]) -> Graph:
    """Modules timed one after another, with two batches where they take both."""
    other: Batch | None = batch.another()
    try:
        graph, between = hooked(name, model, (batch, other), device)
    except InputError:
        other = None
        graph, between = hooked(name, model, (batch, None), device)
    notes.append(f"all of {len(graph.nodes)} modules are timed on {device}")
    notes.append(
        f"{100 * between:.0f} % of the forward is in no module; branches, sums and what else is "
        f"between modules are not seen: the file is a chain"
    )
    notes.append(_batches(batch, None if other is None else other.size))
    return graph


def _batches(batch: Batch, other: int | None) -> str:
    """At which batches something was timed, and what that leaves open."""
    asked = batch.size
    if other is None:
        alone = f"a batch of {asked} alone, as the module does not take {batch.other_size}"
        return f"timed with {alone}: seconds a sample hold near that batch only"
    return f"timed with batches of {asked} and {other}: seconds of a call, and of each sample"


if __name__ == "__main__":
    sys.exit(main())
