"""The commands that start the executor on this machine: run and calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.terminal import (
    AsJson,
    Overrides,
    ScenarioPath,
    load,
    note,
    print_json,
    progress,
    show,
)


def run(  # noqa: PLR0913 - one argument per option
    scenario: ScenarioPath,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="folder for results")] = Path("build/run"),
    steps: Annotated[int, typer.Option(min=1, help="measured steps")] = 10,
    warmup: Annotated[int, typer.Option(min=0, help="steps that are not measured")] = 3,
    data: Annotated[Path | None, typer.Option(help="text file or folder to train on")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: what is there")] = None,
    seed: Annotated[int, typer.Option(help="of weights and batches")] = 0,
    timeout: Annotated[float, typer.Option(help="seconds before a hung rank ends the run")] = 300.0,
    verify: Annotated[
        bool, typer.Option("--verify", help="compare gradients with one process")
    ] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="more ranks than devices share them")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a scenario's plan with torch on this machine and compare it with the prediction."""
    from parsim.launch import RunOptions, run_plan

    found = load(scenario, overrides)
    options = RunOptions(
        out=out, overrides=tuple(overrides or ()), steps=steps, warmup=warmup, seed=seed,
        timeout=timeout, data=data, device=device, verify=verify, oversubscribe=oversubscribe,
    )  # fmt: skip
    with progress("running"):
        document = run_plan(scenario, found.fixed_plan().world_size, options)
    if as_json:
        print_json(document)
        return
    from parsim.report.run import run_view

    show(run_view(document, str(out)))


def calibrate(
    out: Annotated[
        Path, typer.Option(help="catalog file to write, for cluster.catalog of a scenario")
    ] = Path("device.yaml"),
    scenario: Annotated[
        Path | None, typer.Option(help="measure the shapes of this scenario's plan too")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="about how long to measure")] = 60.0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: what is there")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine and write the device and system that the simulator reads."""
    from parsim.launch import calibrate as measure

    with progress("measuring"):
        document = measure(out, scenario=scenario, seconds=seconds, device=device)
    if as_json:
        print_json(document)
        return
    from parsim.report.run import residuals_view

    show(residuals_view(document))
    for said in document["device"]["notes"]:
        note(f"note: {said}")
    names = [document[part]["id"] for part in ("device", "system") if document[part]]
    note(f"{' and '.join(names)} written to {out}")
