"""The command `parsim run`: one process of the executor for each rank, and what they measured."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
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

    loaded, options = _asked(scenario, overrides or [], given)
    if options.emit is not None:
        if as_json:
            raise InputError("--emit prints a script and --json a document; use one of them")
        sys.stdout.write(emit(options.emit, loaded, options))
        return
    note_memory(api.simulate(loaded, timeline=False))
    note_recorded(loaded)
    note_software(loaded)
    with progress("running") as advance:
        document = run_plan(scenario, loaded.fixed_plan().processes, options, _steps_told(advance))
    if document is None:
        elsewhere = f"rank 0 ran on another node and wrote {options.out} there"
        note(f"this node's ranks are done; {elsewhere}")
        return
    _tell(document, options.out, as_json=as_json)


def note_software(loaded: Scenario) -> None:
    """Say that another stack's habits are predicted than those of what runs."""
    software = loaded.job.software
    if not software.executor:
        note(
            f"note: predicted is software {software.id}, what runs is parsim's own executor; "
            f"--set software=executor-cpu (or executor-cuda) predicts that"
        )


def _is_calibrated_file(device: str | None) -> bool:
    """Whether `--device` names a file of `parsim calibrate`, and no kind of device."""
    return device is not None and Path(device).suffix in (".yaml", ".yml")


def _asked(
    scenario: Path, overrides: Sequence[str], given: dict[str, Any]
) -> tuple[Scenario, RunOptions]:
    """The scenario that is run, and how; a calibration of this machine comes in as overrides."""
    words = list(overrides)
    if _is_calibrated_file(given["device"]):
        pairs = calibrated(Path(given["device"]))
        words = [*(f"{key}={value}" for key, value in pairs.items()), *words]
        given = {**given, "device": None}
    words += RunOptions(**given).of_scenario
    loaded, words = _loaded(scenario, words, oversubscribe=given["oversubscribe"])
    return loaded, RunOptions(overrides=tuple(words), **given)


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
    from parsim.report.text.measured.step_line import step_line

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
