"""The commands that start the executor on this machine: run and calibrate."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.terminal import (
    AsJson,
    Overrides,
    ScenarioPath,
    calibrated,
    load,
    note,
    note_memory,
    note_recorded,
    print_json,
    progress,
    show,
)
from parsim.errors import InputError, PlanError, ToleranceExceeded
from parsim.launch.options import Declared, RunOptions, declared

if TYPE_CHECKING:
    from parsim.scenario import Scenario


def _with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `RunOptions`, which stand in front of its `--json`."""
    *first, as_json, _ = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [*first, *map(_parameter, declared()), as_json]
    keywords = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
    vars(command)["__signature__"] = inspect.Signature(keywords)
    return command


def _parameter(option: Declared) -> Parameter:
    """One option as typer reads it; a switch has no opposite."""
    names = [option.word] if option.type is bool else []
    shown = typer.Option(
        *names, help=option.flag.help, metavar=option.flag.metavar, min=option.flag.least
    )
    kind = option.type | None if option.optional else option.type
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[kind, shown],
    )


@_with_run_options
def run(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    as_json: AsJson = False,
    **given: Any,  # noqa: ANN401 - one value for each option
) -> None:
    """Run a scenario's plan with torch on this machine and compare it with the prediction."""
    from parsim import api
    from parsim.launch.emit import emit
    from parsim.launch.launch import run_plan

    device = given["device"]
    if device is not None and Path(device).suffix in (".yaml", ".yml"):
        pairs = calibrated(Path(device))
        overrides = [*(f"{key}={value}" for key, value in pairs.items()), *(overrides or ())]
        given["device"] = None
    overrides = [*(overrides or ()), *RunOptions(**given).of_scenario]
    loaded, overrides = _loaded(scenario, overrides, oversubscribe=given["oversubscribe"])
    options = RunOptions(overrides=tuple(overrides), **given)
    if options.emit is not None:
        if as_json:
            raise InputError("--emit prints a script and --json a document; use one of them")
        sys.stdout.write(emit(options.emit, loaded, options))
        return
    note_memory(api.simulate(loaded, timeline=False))
    note_recorded(loaded)
    with progress("running") as advance:
        document = run_plan(scenario, loaded.fixed_plan().processes, options, _steps_told(advance))
    if document is None:
        elsewhere = f"rank 0 ran on another node and wrote {options.out} there"
        note(f"this node's ranks are done; {elsewhere}")
        return
    _tell(document, options.out, as_json=as_json)


def _loaded(path: Path, overrides: list[str], *, oversubscribe: bool) -> tuple[Scenario, list[str]]:
    """The scenario and its overrides; cores of a CPU's system may be shared by several ranks."""
    from parsim.scenario import stated_ranks

    try:
        return load(path, overrides), overrides
    except PlanError as wrong:
        pairs = {key: value for key, _, value in (text.partition("=") for text in overrides)}
        ranks = stated_ranks(path, pairs)
        if not (oversubscribe and ranks and "world size mismatch" in str(wrong)):
            raise
        wider = [*overrides, f"cluster.devices_per_node={ranks}"]
        try:
            return load(path, wider), wider
        except InputError:
            raise wrong from None


def _steps_told(advance: Callable[[int, int], None]) -> Callable[[Mapping[str, Any]], None] | None:
    """What tells of each step on a terminal; elsewhere `steps.jsonl` alone does."""
    from parsim.report.text.run import step_line

    def tell(record: Mapping[str, Any]) -> None:
        note(step_line(record))
        advance(record["step"] + 1, record["steps"])

    return tell if sys.stderr.isatty() else None


def _tell(document: dict[str, Any], out: Path, *, as_json: bool) -> None:
    """Print a run's document; it fails where training did."""
    from parsim.report.text.run import diverged, run_view
    from parsim.report.text.verified import verdict

    if as_json:
        print_json(document)
    else:
        show(run_view(document, str(out)))
    if document["verify"] is not None and not document["verify"]["within"]:
        raise ToleranceExceeded(verdict(document["verify"]))
    measured = document["measured"]
    if message := diverged(measured["loss"], measured.get("lost_on_ranks", ())):
        raise ToleranceExceeded(message)


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
        _correct(out, runs, scenario or [], merge, as_json=as_json)
        return
    if merge is None and out.exists():
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
