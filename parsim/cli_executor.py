"""The commands that start the executor on this machine: run and calibrate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.errors import InputError, ToleranceExceeded
from parsim.terminal import (
    AsJson,
    Overrides,
    ScenarioPath,
    calibrated,
    load,
    note,
    print_json,
    progress,
    show,
)

if TYPE_CHECKING:
    from parsim.launch import RunOptions
    from parsim.scenario import Scenario


def run(  # noqa: PLR0913 - one argument per option
    scenario: ScenarioPath,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="folder for results")] = Path("build/run"),
    steps: Annotated[int, typer.Option(min=1, help="measured steps")] = 10,
    warmup: Annotated[int, typer.Option(min=0, help="steps that are not measured")] = 3,
    data: Annotated[Path | None, typer.Option(help="text file or folder to train on")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json for the text; default: its bytes")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda; or a file of `parsim calibrate` to predict with"),
    ] = None,
    nnodes: Annotated[
        int | None, typer.Option(metavar="N", help="run on N nodes; start the same on each")
    ] = None,
    rdzv_endpoint: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="where the nodes meet")
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(metavar="torchrun|sbatch", help="print a script that runs it, and stop"),
    ] = None,
    seed: Annotated[int, typer.Option(help="of weights and batches")] = 0,
    timeout: Annotated[float, typer.Option(help="seconds before a hung rank ends the run")] = 300.0,
    verify: Annotated[
        bool, typer.Option("--verify", help="compare gradients with one process")
    ] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="more ranks than devices share them")
    ] = False,
    checkpoint_every: Annotated[
        int, typer.Option(min=0, metavar="STEPS", help="save the training; 0: never")
    ] = 0,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where; default: OUT/checkpoints")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on from the newest checkpoint")
    ] = False,
    max_restarts: Annotated[
        int, typer.Option(min=0, metavar="N", help="times that ranks start again after a fault")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a scenario's plan with torch on this machine and compare it with the prediction."""
    from parsim.launch import RunOptions, run_plan
    from parsim.nodes import Nodes

    if device is not None and Path(device).suffix in (".yaml", ".yml"):
        pairs = calibrated(Path(device))
        overrides = [*(f"{key}={value}" for key, value in pairs.items()), *(overrides or ())]
        device = None
    found = load(scenario, overrides)
    nodes = Nodes.asked(nnodes, rdzv_endpoint)
    options = RunOptions(
        out=out, overrides=tuple(overrides or ()), steps=steps, warmup=warmup, seed=seed,
        timeout=timeout, data=data, tokenizer=tokenizer, device=device, nodes=nodes,
        verify=verify, oversubscribe=oversubscribe,
        checkpoint_every=checkpoint_every, checkpoints=checkpoints, resume=resume,
        max_restarts=max_restarts,
    )  # fmt: skip
    if emit is not None:
        _print_script(emit, found, options, as_json=as_json, nodes_asked=nnodes is not None)
        return
    with progress("running"):
        document = run_plan(scenario, found.fixed_plan().world_size, options)
    if document is None:
        note(f"this node's ranks are done; rank 0 ran on another node and wrote {out} there")
        return
    _tell(document, out, as_json=as_json)


def _print_script(
    form: str, found: Scenario, options: RunOptions, *, as_json: bool, nodes_asked: bool
) -> None:
    """Print a script, which is text and starts nothing."""
    from parsim.emit import emit

    if as_json:
        raise InputError("--emit prints a script and --json a document; use one of them")
    sys.stdout.write(emit(form, found, options, nodes_asked=nodes_asked))


def _tell(document: dict[str, Any], out: Path, *, as_json: bool) -> None:
    """Print a run's document; it fails where training did."""
    from parsim.report.run import diverged, run_view, verdict

    if as_json:
        print_json(document)
    else:
        show(run_view(document, str(out)))
    if document["verify"] is not None and not document["verify"]["within"]:
        raise ToleranceExceeded(verdict(document["verify"]))
    measured = document["measured"]
    if message := diverged(measured["loss"], measured.get("lost_on_ranks", ())):
        raise ToleranceExceeded(message)


def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            help="catalog file to write, for --device or cluster.catalog of a scenario; "
            "default: device.yaml, or the file to merge"
        ),
    ] = None,
    scenario: Annotated[
        list[Path] | None,
        typer.Option(help="measure what carries this scenario's plan, or its space; repeatable"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="about how long to measure")] = 55.0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: what is there")] = None,
    merge: Annotated[
        Path | None,
        typer.Option(metavar="OLD.yaml", help="keep this earlier calibration's points too"),
    ] = None,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="groups of more ranks than devices too")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure this machine and write the device and system that the simulator reads."""
    from parsim.measuring import calibrate as measure

    out = out or merge or Path("device.yaml")
    if merge is None and out.exists():
        note(f"note: {out} is there and will be replaced; --merge {out} would keep its points")
    with progress("measuring"):
        document = measure(
            out, scenarios=scenario or (), seconds=seconds, device=device, merge=merge,
            oversubscribe=oversubscribe,
        )  # fmt: skip
    if as_json:
        print_json(document)
        return
    from parsim.report.run import residuals_view

    show(residuals_view(document))
    for said in document["device"]["notes"]:
        note(f"note: {said}")
    note(f"note: {_interval(document)}")
    note(f"note: {_took(document)}")
    if merge is not None:
        points = document["merged"]["points"]
        note(f"note: {points['older']} and {points['newer']} points were merged to "
             f"{points['merged']}; {'; '.join(document['merged']['sources'])}")  # fmt: skip
    names = [document[part]["id"] for part in ("device", "system") if document[part]]
    note(f"{' and '.join(names)} written to {out}")


def _took(document: dict[str, Any]) -> str:
    """Seconds by part of a calibration, and how many groups its curves are of."""
    parts = ", ".join(f"{name} {found:.1f} s" for name, found in document["seconds_of"].items())
    sizes = ", ".join(map(str, document["groups"]["sizes"]))
    groups = f"collectives of groups of {sizes} ranks; " if sizes else ""
    return f"{groups}{parts}, {document['seconds']:.1f} s in all"


def _interval(document: dict[str, Any]) -> str:
    """How sure a calibration has made a step's kernel time."""
    count = sum(one["measured"] for one in document["chosen"].values())
    before, expected, after = (
        f"±{100 * document['interval'][key]:.1f} %" for key in ("before", "expected", "after")
    )
    return (
        f"{count} shapes were measured: 80 % interval of a step's kernel time {before} -> {after} "
        f"(expected {expected})"
    )
