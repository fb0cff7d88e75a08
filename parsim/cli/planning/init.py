"""`parsim init`: a first scenario, to be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.cli.terminal import note
from parsim.errors import InputError

File = Annotated[Path, typer.Argument(metavar="FILE", help="the scenario to write: .yaml")]
Model = Annotated[str, typer.Option(help="a name of `parsim catalog models`, or a config.json")]
SystemName = Annotated[str, typer.Option("--system", help="a name of `parsim catalog systems`")]
Nodes = Annotated[int, typer.Option(min=1, max=10**6, help="how many nodes of it")]
Devices = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="devices of each node; default: all that it has"),
]
Batch = Annotated[
    int | None, typer.Option(min=1, help="samples of a step; default: 8 a device, 64 images")
]
Tokens = Annotated[
    int | None, typer.Option("--seq-len", min=1, help="tokens of a sequence; default: the model's")
]
Stack = Annotated[
    str | None, typer.Option("--software", help="a name of `parsim catalog software`")
]


def init(
    file: File = Path("scenario.yaml"),
    model: Model = "llama3-8b",
    system: SystemName = "dgx-h100",
    nodes: Nodes = 1,
    devices_per_node: Devices = None,
    batch: Batch = None,
    seq_len: Tokens = None,
    software: Stack = None,
) -> None:
    """Write a first scenario with its values explained, to be changed and searched."""
    from parsim.report.writing import write_text
    from parsim.scenario.starter import Start, starter_text

    if file.suffix not in (".yaml", ".yml"):
        raise InputError(f"{file}: a scenario is a YAML file; allowed: .yaml, .yml")
    if file.exists():
        raise InputError(f"{file}: is there already; name another file, or delete it")
    start = Start(
        model=model,
        system=system,
        nodes=nodes,
        batch=batch,
        devices_per_node=devices_per_node,
        seq_len=seq_len,
        software=software,
    )
    write_text(file, starter_text(start, file))
    note(f"scenario written to {file}; next: parsim search {file}")
