"""`python -m executor.profiling FILE.py:FUNCTION --input SIZES`: the model file on stdout."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import platform
import re
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from executor.devices.machine import use_one_thread
from executor.faults.parent import command
from executor.profiling.export import exported, graph_of
from executor.profiling.hooks import hooked
from executor.profiling.sizes import another, same_nodes
from executor.profiling.stored import memory_of
from parsim.errors import InputError, ParsimError, did_you_mean, shown
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import graph_text
from parsim.model.graph.record import Graph

KINDS = {"float32": torch.float32, "int64": torch.int64, "int32": torch.int32}
"""Types that an input may have: values, or token ids."""

WORDS = 100
"""Token ids are below this, for every vocabulary has as many."""


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


def example(text: str, model: nn.Module) -> Tensor:
    """A batch of the sizes of a text: values, or token ids where an embedding reads them.

    A type may stand behind the sizes: `4x16:int64` are token ids, `4x16:float32` are values.

    Raises:
        InputError: the text is no list of sizes, or has another type.
    """
    match = re.fullmatch(r"([1-9]\d{0,8}(?:x[1-9]\d{0,8})+)(?::(\w+))?", text)
    if match is None:
        raise InputError(f"--input '{shown(text)}' must be BATCHxSIZES, such as 32x3x224x224")
    sizes, kind = tuple(map(int, match[1].split("x"))), match[2]
    if kind not in (None, *KINDS):
        raise InputError(f"--input '{shown(text)}': allowed types: {', '.join(KINDS)}")
    if kind is None:
        rows = _rows_read(model, sizes)
        return torch.randn(sizes) if rows is None else torch.randint(min(WORDS, rows), sizes)
    if KINDS[kind].is_floating_point:
        return torch.randn(sizes, dtype=KINDS[kind])
    tables = [part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)]
    return torch.randint(min([WORDS, *tables]), sizes, dtype=KINDS[kind])


def _rows_read(model: nn.Module, sizes: tuple[int, ...]) -> int | None:
    """Rows of the table that reads the input; None where the input is no token ids."""
    tables = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    if not tables:
        return None
    ids, read = torch.zeros(sizes, dtype=torch.int64), list[int]()

    def watch(table: nn.Module, given: tuple[object, ...]) -> None:
        if given and isinstance(given[0], Tensor) and memory_of(given[0]) == memory_of(ids):
            read.append(int(table.num_embeddings))

    handles = [table.register_forward_pre_hook(watch) for table in tables]
    try:
        with torch.no_grad(), suppress(Exception):  # values, then; whatever the user's code raises
            model(ids)
    finally:
        for handle in handles:
            handle.remove()
    return min(read, default=None)


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
    parser.add_argument("--input", required=True)
    parser.add_argument("--hooks", action="store_true")
    asked = parser.parse_args()
    return command(lambda: _work(asked))


def _work(asked: argparse.Namespace) -> None:
    use_one_thread()
    with redirect_stdout(sys.stderr):  # the user's code may print; the document is alone there
        document = profiled(asked.target, asked.input, hooks=asked.hooks)
    sys.stdout.write(json.dumps(document))


def profiled(target: str, sizes: str, *, hooks: bool) -> dict[str, object]:
    """The model file's text, and notes.

    Raises:
        InputError: no module, or one that fails.
    """
    model = built(target)
    _check_one_input(target, model)
    batch = example(sizes, model)
    name = target.rpartition(":")[0].rpartition("/")[2].removesuffix(".py")
    device = f"cpu: one thread of {platform.processor() or platform.machine()}"
    notes: list[str] = []
    graph = None
    if not hooks:
        try:
            graph = _of_export(name, model, batch, device, notes)
        except ParsimError as reason:
            notes.append(f"{reason}; modules are timed one after another instead (hooks)")
    if graph is None:
        graph = _of_hooks(name, model, batch, device, notes)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    graph = replace(graph, profiled_parameters=parameters)
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


def _check_one_input(target: str, model: nn.Module) -> None:
    """Refuse a module that takes several tensors: a model file has one input."""
    taken = [
        name
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if len(taken) > 1:
        raise InputError(
            f"{target}: forward takes {', '.join(taken)}, and a model file has one input; let the "
            f"function return a module that takes one tensor and makes the others of it"
        )


def _of_export(name: str, model: nn.Module, batch: Tensor, device: str, notes: list[str]) -> Graph:
    """The exported graph, timed with two batches where the module takes both."""
    module, other, again = exported(model, batch), another(batch), None
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
        notes.append(_batches(batch, other if again else None))
    return graph


def _of_hooks(name: str, model: nn.Module, batch: Tensor, device: str, notes: list[str]) -> Graph:
    """Modules timed one after another, with two batches where they take both."""
    other: Tensor | None = another(batch)
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
    notes.append(_batches(batch, other))
    return graph


def _batches(batch: Tensor, other: Tensor | None) -> str:
    """At which batches something was timed, and what that leaves open."""
    asked = len(batch)
    if other is None:
        alone = f"a batch of {asked} alone, as the module does not take {len(another(batch))}"
        return f"timed with {alone}: seconds a sample hold near that batch only"
    return f"timed with batches of {asked} and {len(other)}: seconds of a call, and of each sample"


if __name__ == "__main__":
    sys.exit(main())
