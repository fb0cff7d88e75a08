"""`parsim profile`: a model file of any module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.cli.terminal import AsJson, note, print_json, progress


def profile(
    module: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="a function that builds the module")
    ],
    sizes: Annotated[
        str, typer.Option("--input", metavar="BATCHxSIZES", help="of a batch, e.g. 32x3x224x224")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="model file; default: FILE.yaml")
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="time the leaf modules, without torch.export")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read a torch module's operations and write a model file that every command takes."""
    from parsim.launch.profiling import profile as ask

    path = out or Path(f"{Path(module.rpartition(':')[0]).stem or 'model'}.yaml")
    with progress("profiling"):
        document = ask(module, sizes, path, hooks=hooks)
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
