"""`parsim profile`: a model file of any module, or of a trace of its training step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parsim.cli.terminal import AsJson, note, print_json, progress
from parsim.errors import InputError

TRACES = (".json", ".json.gz")
"""How the names of a profiler's traces end."""
LAYERS = ".txt"
"""How the name of PipeDream's profile of layers ends."""


def profile(
    module: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION|TRACE.json|graph.txt",
            help="a function that builds the module, or what torch's or PipeDream's profiler wrote",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[ARGUMENT=]BATCHxSIZES[:TYPE]",
            help="sizes of a batch, e.g. 32x3x224x224, or 4x16:int64; again for other arguments of "
            "forward, e.g. mask=4x16; a trace tells its own",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="model file; default: FILE.yaml")
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="time the leaf modules, without torch.export")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read a torch module's operations and write a model file that every command takes.

    A trace (prof.export_chrome_trace, also .json.gz) of a training step gives measured layers, as
    PipeDream's graph.txt does.
    """
    traced = module.endswith(TRACES)
    recorded = traced or module.endswith(LAYERS)
    source = module.removesuffix(".gz") if recorded else module.rpartition(":")[0]
    path = out or Path(f"{Path(source).stem or 'model'}.yaml")
    document = _profiled(module, inputs or [], path, traced=traced, hooks=hooks)
    if as_json:
        print_json(document)
        return
    for remark in document["notes"]:
        note(f"note: {remark}")
    note(
        f"{document['name']}: {document['parameters']:,} parameters, {document['operations']} "
        f"operations in {document['layers']} layers, written to {path}; use it in a scenario as "
        f"model: {{file: {path}}}"
    )


def _profiled(
    module: str, inputs: list[str], path: Path, *, traced: bool, hooks: bool
) -> dict[str, Any]:
    """The document of a model file, which is written; of times that are there, or of a module."""
    from parsim.launch.profiling import profile as ask
    from parsim.launch.profiling import profile_layers, profile_trace

    layers = module.endswith(LAYERS)
    if (traced or layers) and hooks:
        raise InputError("--hooks times a module; a trace has its times")
    if (traced or layers) and len(inputs) > 1:
        raise InputError("a trace has one batch; give --input once, or leave it out")
    if traced:
        return profile_trace(Path(module), inputs[0] if inputs else None, path)
    if not inputs and layers:
        raise InputError(
            f"{module} does not say how many samples its mini-batch had; give --input "
            "BATCHxSIZES, for example 128x3x224x224"
        )
    if layers:
        return profile_layers(Path(module), inputs[0], path)
    if not inputs:
        raise InputError("a module needs --input BATCHxSIZES, for example 32x3x224x224")
    with progress("profiling"):
        return ask(module, inputs, path, hooks=hooks)
