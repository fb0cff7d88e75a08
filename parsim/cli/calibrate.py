"""The command `parsim calibrate`: measures this machine, or corrects its file by recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parsim.cli.terminal import AsJson, calibrated, note, print_json, progress, show
from parsim.errors import InputError


def calibrate(  # noqa: PLR0913  one parameter an option
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
    base: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="the catalog's device whose figures stand in for what is not measured, of a GPU "
            "that the catalog lacks",
        ),
    ] = None,
    merge: Annotated[
        Path | None,
        typer.Option(metavar="OLD.yaml", help="keep this earlier calibration's points too"),
    ] = None,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="groups of more ranks than devices too")
    ] = False,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="RUN.json",
            help="correct the file by this run of `parsim run` instead of measuring; repeatable",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine and write the device and system that the simulator reads."""
    from parsim.launch.measuring import calibrate as measure

    out = out or merge or Path("device.yaml")
    if runs:
        measuring = {"--device": device, "--base": base, "--oversubscribe": oversubscribe}
        _check_alone([name for name, value in measuring.items() if value])
        _correct(out, runs, scenario or [], merge, as_json=as_json)
        return
    if merge is None and out.is_file():
        note(f"note: {out} is there and will be replaced; --merge {out} would keep its points")
    with progress("measuring"):
        document = measure(
            out,
            scenarios=scenario or (),
            seconds=seconds,
            device=device,
            merge=merge,
            oversubscribe=oversubscribe,
            base=base,
        )
    if as_json:
        print_json(document)
    else:
        _show_calibration(document, out, merged=merge is not None)


def _check_alone(given: list[str]) -> None:
    """Refuse options of measuring beside runs that correct a file."""
    if given:
        raise InputError(f"--from measures nothing; leave {', '.join(given)} out")


def _show_calibration(document: dict[str, Any], out: Path, *, merged: bool) -> None:
    """Print what a calibration measured, what it could not, and what its file says now."""
    from parsim.report.text.calibration import gaps_view
    from parsim.report.text.run import residuals_view

    show(residuals_view(document))
    show(gaps_view(document))
    for text in document["device"]["notes"]:
        note(f"note: {text}")
    note(f"note: {_interval(document)}")
    note(f"note: {_took(document)}")
    if merged:
        points = document["merged"]["points"]
        note(
            f"note: {points['older']} and {points['newer']} points were merged to "
            f"{points['merged']}; {'; '.join(document['merged']['sources'])}"
        )
    names = [document[part]["id"] for part in ("device", "system") if document[part]]
    note(f"{' and '.join(names)} written to {out}")


def _correct(
    file: Path, runs: list[Path], scenarios: list[Path], merge: Path | None, *, as_json: bool
) -> None:
    """Correct a calibrated file by recorded runs and say what they showed."""
    from parsim.launch.recorded_runs import correct
    from parsim.report.text.calibration import recorded_view

    if merge is not None or len(scenarios) > 1:
        raise InputError("--from corrects one file, --out, by runs of one --scenario at most")
    if not file.exists():
        raise InputError(f"{file} is not there; measure first: parsim calibrate --out {file}")
    document = correct(file, runs, calibrated(file), scenarios[0] if scenarios else None)
    if as_json:
        print_json(document)
        return
    show(recorded_view(document))
    count = len(document["runs"])
    runs_correct = "1 run corrects" if count == 1 else f"{count} runs correct"
    note(f"{runs_correct} {document['device']} in {file}")


def _took(document: dict[str, Any]) -> str:
    """Seconds by part of a calibration, and how many groups its curves are of."""
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in document["seconds_of"].items())
    sizes = ", ".join(map(str, document["groups"]["sizes"]))
    groups = f"collectives of groups of {sizes} ranks; " if sizes else ""
    return f"{groups}{parts}, {document['seconds']:.1f} s in all"


def _interval(document: dict[str, Any]) -> str:
    """How sure a calibration has made a step's kernel time."""
    count = sum(kind["measured"] for kind in document["chosen"].values())
    before, expected, after = (
        f"±{100 * document['interval'][key]:.1f} %" for key in ("before", "expected", "after")
    )
    return (
        f"{count} shapes were measured: 80 % interval of a step's kernel time {before} -> {after} "
        f"(expected {expected})"
    )
