"""The command line: arguments in, exit code out; no physics, heavy imports inside commands.

Results go to stdout, progress and notes to stderr. Exit codes: 0 done, 1 a bug of parsim, 2 the
user's input is wrong, 3 nothing feasible, 4 a comparison fell outside its tolerance.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.errors import InputError, NoFeasiblePlan, ParsimError, ToleranceExceeded

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parsim.scenario import Scenario
    from parsim.validation.compare import Validation

app = typer.Typer(
    name="parsim",
    help="Predict step time, bubble and memory of parallel training plans, and find the best one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="scenario or plan file")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a field, e.g. --set plan.tp=4"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; never a traceback without --debug."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    _print_anywhere()
    try:
        result = app(args=words, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except ParsimError as error:
        if debug:
            raise
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except (BrokenPipeError, SystemExit):  # typer makes the first into the second
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _unexpected(error, debug)


def _print_anywhere() -> None:
    """Print a question mark for what the encoding of the terminal or file does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _unexpected(error: Exception, debug: bool) -> int:
    usage = getattr(error, "format_message", None)
    if usage is not None:  # typer's own usage errors; no text where it has printed the help
        if usage():
            _complain(f"{usage()} (see parsim --help)")
        return 2
    if debug:
        raise error
    _complain(
        f"bug in parsim: {type(error).__name__}: {error}; please report it, with the output of "
        f"the same command and --debug"
    )
    return 1


def _complain(text: str) -> None:
    sys.stderr.write(f"error: {text}\n")


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _show(view: RenderableType) -> None:
    from parsim.report.text import console

    console().print(view)


def _load(path: Path, overrides: list[str] | None) -> Scenario:
    from parsim.scenario import load_scenario

    pairs: dict[str, str] = {}
    for text in overrides or []:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise InputError(f"--set {text!r} must be KEY=VALUE, e.g. --set plan.tp=4")
        pairs[key] = value
    scenario = load_scenario(path, pairs)
    for note in scenario.notes:
        _note(f"note: {note}")
    return scenario


def _version(show: bool) -> None:
    if show:
        from parsim import __version__

        sys.stdout.write(f"parsim {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    """Options of every command."""


@app.command()
def check(scenario: ScenarioPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Read a scenario and say what it resolves to, or file:line:column of what is wrong."""
    from parsim.report.resolved import resolved, resolved_text

    found = _load(scenario, overrides)
    if as_json:
        _print_json(resolved(found))
    else:
        sys.stdout.write(resolved_text(found, str(scenario)))


@app.command()
def simulate(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    events: Annotated[
        bool, typer.Option("--events", help="run the discrete-event tier too and compare")
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option(help="save the timeline, for compare and timeline: .json")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict step time, bubble, memory and utilisation of a scenario's plan."""
    from parsim.report.save import check_own_form, save_own_form
    from parsim.search.relax import shortage_message
    from parsim.sim import simulate as predict
    from parsim.validation.evidence import describe, evidence_for

    found = _load(scenario, overrides)
    plan = found.fixed_plan()
    if timeline is not None:
        check_own_form(timeline, scenario)
    prediction = predict(
        found.job, plan, tier="events" if events else "evaluate", timeline=timeline is not None
    )
    usable = found.job.device.usable_memory
    evidence = evidence_for(found.job.device.id, found.job.software.id)
    if as_json:
        _print_json({**prediction.to_json(), "evidence": evidence and evidence.to_json()})
    else:
        from parsim.report.text import prediction_view

        _show(prediction_view(prediction, usable=usable, evidence=describe(evidence)))
    if timeline is not None and prediction.timeline is not None:
        save_own_form(prediction.timeline, timeline)
        _note(f"timeline written to {timeline}")
    if max(prediction.peak_allocated) > usable:
        raise NoFeasiblePlan(shortage_message(found.job, plan))


@app.command()
def search(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    top: Annotated[int, typer.Option(min=1, help="how many plans to print")] = 10,
    save: Annotated[
        Path | None, typer.Option(help="write the best plan as a scenario file")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, help="seconds; then print the best so far")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate every legal plan of a scenario and rank those that fit."""
    from parsim.report.save import check_writable, write_text
    from parsim.scenario import scenario_text
    from parsim.search.search import search as find
    from parsim.validation.evidence import describe, evidence_for

    found = _load(scenario, overrides)
    evidence = evidence_for(found.job.device.id, found.job.software.id)
    space = found.plan_space()
    if save is not None:
        check_writable(save)
    with _progress("evaluating plans") as step:
        result = find(found.job, space, top=top, progress=step, time_limit=time_limit)
    if as_json:
        _print_json(result.to_json())
    else:
        from parsim.report.text import search_view

        limit = found.job.device.usable_memory * (1.0 - space.memory_margin)
        _show(search_view(result, usable=limit, evidence=describe(evidence)))
    if save is not None:
        write_text(save, scenario_text(found, result.plans[0].plan))
        _note(f"best plan written to {save}")


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr where that is a terminal; called with (done, total)."""
    from rich.progress import Progress

    from parsim.report.text import console

    with Progress(console=console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bar:  # fmt: skip
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command()
def timeline(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="scenario, plan or saved timeline")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help=".png, .svg, .html or .json (Perfetto trace)")
    ],
    overrides: Overrides = None,
    memory: Annotated[bool, typer.Option("--memory", help="memory curves below")] = False,
    critical: Annotated[bool, typer.Option("--critical", help="overlay the critical path")] = False,
    until: Annotated[float | None, typer.Option(help="draw the first so many seconds")] = None,
) -> None:
    """Draw what every pipeline rank does when, and where the bubbles are."""
    from parsim.report.drawable import predicted, saved
    from parsim.report.save import check_other, check_suffix, save_timeline

    check_suffix(output)
    check_other(output, scenario)
    drawn, said = saved(scenario, overrides) or predicted(_load(scenario, overrides), output, _note)
    with _progress("drawing"):
        save_timeline(drawn, output, summary=said, memory=memory, critical=critical, until=until)
    _note(f"timeline written to {output}")


@app.command()
def compare(
    predicted: Annotated[Path, typer.Argument(metavar="PREDICTED", help="saved timeline")],
    measured: Annotated[Path, typer.Argument(metavar="MEASURED", help="saved timeline")],
    tolerance: Annotated[
        float, typer.Option(help="largest error of step time and peak memory; more is exit code 4")
    ] = 0.1,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="picture of both: .png or .svg")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lay a measured timeline over a predicted one: signed errors, and a picture."""
    from parsim.timeline_reader import load_timeline
    from parsim.validation.timelines import compare_timelines

    both = load_timeline(predicted), load_timeline(measured)
    found = compare_timelines(*both, tolerance=tolerance)
    for note in found.notes:
        _note(f"note: {note}")
    if output is not None:
        from parsim.report.overlay import draw_overlay

        draw_overlay(*both, found, path=output)
        _note(f"picture written to {output}")
    if as_json:
        _print_json(found.to_json())
    else:
        from parsim.report.compare import comparison_view

        _show(comparison_view(found))
    if not found.within_tolerance:
        raise ToleranceExceeded(found.verdict)


@app.command()
def validate(
    tables: Annotated[
        list[Path] | None, typer.Argument(metavar="TABLE.csv", help="default: shipped tables")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="every row, and the assumptions per stack")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="write a Markdown report")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict measured runs and print signed errors."""
    from parsim.report.save import check_writable, write_text
    from parsim.validation.compare import shipped_tables
    from parsim.validation.compare import validate as compare

    if report is not None:
        check_writable(report)
    with _progress("predicting rows") as step:
        found = compare(tables or shipped_tables(), progress=step)
    if as_json:
        _print_json(found.to_json())
    else:
        from parsim.report.text import validation_view

        _show(validation_view(found, rows=verbose or bool(tables)))
        _explain(found, verbose)
    if report is not None:
        from parsim.report.accuracy import accuracy_report

        words = " ".join(str(path) for path in tables or [])
        command = " ".join(f"parsim validate {words} --report {report}".split())
        write_text(report, accuracy_report(found, command=command))
        _note(f"report written to {report}")


def _explain(found: Validation, verbose: bool) -> None:
    from parsim.validation.assumptions import explain

    notes = sorted({note for row in found.rows for note in row.notes})
    for note in notes:
        _note(f"note: {note}")
    if verbose:
        for stack in sorted({row.stack for row in found.rows if row.stack}):
            sys.stdout.write("\n".join(explain(stack)) + "\n")


@app.command()
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

    found = _load(scenario, overrides)
    options = RunOptions(
        out=out, overrides=tuple(overrides or ()), steps=steps, warmup=warmup, seed=seed,
        timeout=timeout, data=data, device=device, verify=verify, oversubscribe=oversubscribe,
    )  # fmt: skip
    with _progress("running"):
        document = run_plan(scenario, found.fixed_plan().world_size, options)
    if as_json:
        _print_json(document)
        return
    from parsim.report.run import run_view

    _show(run_view(document, str(out)))


@app.command()
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

    with _progress("measuring"):
        document = measure(out, scenario=scenario, seconds=seconds, device=device)
    if as_json:
        _print_json(document)
        return
    from parsim.report.text import percent, table

    made = table("|predicted / measured - 1|", "n", "median", "p90", "max", right=(1, 2, 3, 4))
    for name, found in (pair for part in document["residuals"].values() for pair in part.items()):
        shares = (percent(found[key]) for key in ("median", "p90", "max"))
        made.add_row(name, str(found["n"]), *shares)
    _show(made)
    for note in document["device"]["notes"]:
        _note(f"note: {note}")
    names = [document[part]["id"] for part in ("device", "system") if document[part]]
    _note(f"{' and '.join(names)} written to {out}")


class CatalogKind(StrEnum):
    """What the catalog lists."""

    devices = "devices"
    systems = "systems"
    models = "models"
    schedules = "schedules"
    software = "software"


@app.command()
def catalog(
    kind: Annotated[CatalogKind, typer.Argument(help="what to list")],
    as_json: AsJson = False,
) -> None:
    """List known devices, systems, models, schedules or software stacks."""
    from parsim.report.catalog import catalog_rows, catalog_view

    rows = catalog_rows(kind.value)
    if as_json:
        _print_json({"schema_version": 1, kind.value: rows})
    else:
        _show(catalog_view(rows))
