"""`parsim export` and `import-config`: a plan as a framework's launch file, and the reverse."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parsim.cli.terminal import Overrides, ScenarioPath, load, note

Target = Annotated[
    str,
    typer.Option(
        "--to",
        help="megatron, megatron-bridge, torchtitan, torchtitan-0.2, deepspeed, accelerate, "
        "torchrun, sbatch, csv",
    ),
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="file; default: stdout")]


def export(
    scenario: ScenarioPath,
    target: Target,
    overrides: Overrides = None,
    output: Output = None,
) -> None:
    """Write a scenario's plan as the launch file of a training framework."""
    from parsim.frameworks.export import export_plan
    from parsim.report.writing import check_other

    loaded = load(scenario, overrides)
    if output is not None:
        check_other(output, *loaded.files)
    _write(export_plan(loaded, loaded.fixed_plan(), target), output)


def import_config(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Megatron-LM arguments, or torchtitan's TOML")
    ],
    system: Annotated[
        str, typer.Option(metavar="ID", help="the machine: a name of `parsim catalog systems`")
    ] = "dgx-h100",
    nodes: Annotated[
        int | None, typer.Option(min=1, help="nodes of it; default: as many as the plan needs")
    ] = None,
    output: Output = None,
) -> None:
    """Make a scenario of the arguments of a job that runs under Megatron-LM or torchtitan."""
    from parsim.frameworks.reading import read_config
    from parsim.report.writing import check_other

    if output is not None:
        check_other(output, file)
    text, notes = read_config(file, system, nodes)
    for remark in notes:
        note(f"note: {remark}")
    _write(text, output)


def _write(text: str, output: Path | None) -> None:
    from parsim.report.writing import write_text

    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)
    note(f"written to {output}")
