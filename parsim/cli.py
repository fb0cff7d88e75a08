"""The command line: arguments in, exit code out; no physics, heavy imports inside commands.

Results go to stdout, progress and notes to stderr. Exit codes: 0 done, 1 a bug of parsim, 2 the
user's input is wrong, 3 nothing feasible, 4 a comparison fell outside its tolerance.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.errors import InputError, NoFeasiblePlan, ParsimError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parsim.plan import Plan, PlanSpace
    from parsim.scenario import Scenario
    from parsim.search.search import SearchResult
    from parsim.sim.prediction import Prediction
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


def _plan(scenario: Scenario) -> Plan:
    if scenario.plan is None:
        raise InputError(
            f"{scenario.path}: no plan block; add one, or take the best of "
            f"`parsim search {scenario.path} --save best.yaml`"
        )
    return scenario.plan


def _space(scenario: Scenario) -> PlanSpace:
    from parsim.plan import Plan, PlanSpace

    if scenario.space is not None:
        return scenario.space
    common = scenario.plan or Plan()
    return PlanSpace(global_batch_size=scenario.global_batch_size, common=common)


def _write(path: Path, text: str) -> None:
    with _writing(path):
        path.write_text(text, encoding="utf-8")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of an output file; say what is wrong where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: cannot write: {path.parent} is not a folder") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot write: {reason.strerror}") from None


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
    found = _load(scenario, overrides)
    job = found.job
    document = {
        "schema_version": 1,
        "name": found.name,
        "model": {"name": job.model.name, "parameters": job.model.parameters,
                  "layers": job.model.num_layers, "seq_len": job.model.seq_len},
        "cluster": {"system": job.system.id, "nodes": job.cluster.num_nodes,
                    "devices": job.cluster.num_devices, "device": job.device.id},
        "software": job.software.id,
        "global_batch_size": found.global_batch_size,
        "plan": found.plan.to_json() if found.plan else None,
    }  # fmt: skip
    if as_json:
        _print_json(document)
        return
    plan = found.plan.label() if found.plan else "none (search it)"
    sys.stdout.write(
        f"{scenario}: ok\n"
        f"  model    {job.model.name}: {job.model.parameters:,} parameters, "
        f"{job.model.num_layers} layers, {job.model.seq_len} tokens\n"
        f"  cluster  {job.cluster.num_nodes} x {job.system.id}: "
        f"{job.cluster.num_devices} x {job.device.id}\n"
        f"  software {job.software.id}: {job.software.description}\n"
        f"  batch    {found.global_batch_size} sequences per step\n"
        f"  plan     {plan}\n"
    )


@app.command()
def simulate(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    events: Annotated[
        bool, typer.Option("--events", help="run the discrete-event tier too and compare")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict step time, bubble, memory and utilisation of a scenario's plan."""
    from parsim.search.relax import shortage_message
    from parsim.sim import simulate as predict

    found = _load(scenario, overrides)
    plan = _plan(found)
    prediction = predict(found.job, plan, tier="events" if events else "evaluate")
    usable = found.job.device.usable_memory
    if as_json:
        _print_json(prediction.to_json())
    else:
        from parsim.report.text import prediction_view

        _show(prediction_view(prediction, usable=usable))
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
    from parsim.scenario import scenario_text

    found = _load(scenario, overrides)
    space = _space(found)
    result = _search(found, space, top, time_limit)
    if as_json:
        _print_json(result.to_json())
    else:
        from parsim.report.text import search_view

        limit = found.job.device.usable_memory * (1.0 - space.memory_margin)
        _show(search_view(result, usable=limit))
    if save is not None:
        _write(save, scenario_text(found, result.plans[0].plan))
        _note(f"best plan written to {save}")


def _search(found: Scenario, space: PlanSpace, top: int, time_limit: float | None) -> SearchResult:
    """Search with a progress bar on stderr where it is a terminal."""
    from rich.progress import Progress

    from parsim.report.text import console
    from parsim.search.search import search as find

    with Progress(console=console(stderr=True), transient=True,
                  disable=not sys.stderr.isatty()) as bar:  # fmt: skip
        task = bar.add_task("evaluating plans", total=None)

        def step(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return find(found.job, space, top=top, progress=step, time_limit=time_limit)


@app.command()
def timeline(
    scenario: ScenarioPath,
    output: Annotated[
        Path, typer.Option("-o", "--output", help=".png, .svg, .html or .json (Perfetto trace)")
    ],
    overrides: Overrides = None,
    memory: Annotated[bool, typer.Option("--memory", help="memory curves below")] = False,
    critical: Annotated[bool, typer.Option("--critical", help="overlay the critical path")] = False,
    until: Annotated[float | None, typer.Option(help="draw the first so many seconds")] = None,
) -> None:
    """Draw what every pipeline rank does when, and where the bubbles are."""
    from parsim.sim import simulate as predict

    suffixes = (".png", ".svg", ".html", ".json")
    if output.suffix not in suffixes:
        raise InputError(
            f"{output}: unknown form {output.suffix!r}; allowed: {', '.join(suffixes)}"
        )
    found = _load(scenario, overrides)
    prediction = predict(found.job, _plan(found), timeline=True)
    if max(prediction.peak_allocated) > found.job.device.usable_memory:
        _note("note: this plan does not fit the devices; see parsim simulate")
    drawn = prediction.timeline
    if drawn is None:
        raise RuntimeError("simulate returned no timeline")
    if output.suffix == ".json":
        from parsim.report.trace import save_trace

        _touch(output)
        save_trace(drawn, output)
    elif output.suffix == ".html":
        from parsim.report.html import to_html

        _write(output, to_html(drawn, summary=_html_summary(found, prediction)))
    else:
        from parsim.report.gantt import draw_timeline

        _touch(output)
        title = f"{found.job.model.name} on {found.job.cluster.num_nodes} x {found.job.system.id}"
        draw_timeline(drawn, path=output, memory=memory, critical=critical, until=until,
                      title=title)  # fmt: skip
    _note(f"timeline written to {output}")


def _touch(path: Path) -> None:
    """Fail early, with a clear message, where a file cannot be written."""
    with _writing(path), path.open("ab"):
        pass


def _html_summary(found: Scenario, prediction: Prediction) -> dict[str, str]:
    from parsim.units import format_bytes, format_seconds

    return {
        "model": f"{found.job.model.name}, {found.job.model.parameters:,} parameters",
        "cluster": f"{found.job.cluster.num_nodes} x {found.job.system.id}",
        "plan": prediction.plan.label(),
        "step time": format_seconds(prediction.step_time),
        "bubble": f"{100 * prediction.bubble_fraction:.1f} % of the pipeline phase",
        "MFU": f"{100 * prediction.mfu:.1f} %",
        "peak memory": format_bytes(max(prediction.peak_allocated)),
    }


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
    from parsim.validation.compare import shipped_tables
    from parsim.validation.compare import validate as compare

    found = compare(tables or shipped_tables())
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
        _write(report, accuracy_report(found, command=command))
        _note(f"report written to {report}")


def _explain(found: Validation, verbose: bool) -> None:
    from parsim.validation.assumptions import explain

    notes = sorted({note for row in found.rows for note in row.notes})
    for note in notes:
        _note(f"note: {note}")
    if verbose:
        for stack in sorted({row.stack for row in found.rows if row.stack}):
            sys.stdout.write("\n".join(explain(stack)) + "\n")


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
