"""The command line: arguments in, exit code out; no physics, heavy imports inside commands.

Results go to stdout, progress and notes to stderr. Exit codes: 0 done, 1 a bug of parsim, 2 the
user's input is wrong, 3 nothing feasible, 4 a comparison fell outside its tolerance.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli_catalog import app as catalog
from parsim.cli_collectives import collectives
from parsim.cli_contention import (
    Beside,
    On,
    contended,
    placed_jobs,
    save_together,
    simulate_together,
)
from parsim.cli_executor import calibrate, run
from parsim.cli_validate import validate
from parsim.errors import InputError, NoFeasiblePlan, ParsimError, ToleranceExceeded
from parsim.terminal import (
    AsJson,
    CalibratedDevice,
    Overrides,
    ScenarioPath,
    load,
    note,
    print_json,
    progress,
    show,
)

if TYPE_CHECKING:
    from parsim.scenario import Scenario
    from parsim.search.contended import ContendedOrder
    from parsim.search.search import SearchResult
    from parsim.sim.contention import Contention
    from parsim.sim.jobs_together import JobsTogether
    from parsim.sim.monte_carlo import JitterResult

INTERRUPTED = 130
"""The shell's code for what Ctrl-C ends: 128 + SIGINT."""

app = typer.Typer(
    name="parsim",
    help="Predict step time, bubble and memory of parallel training plans, and find the best one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; never a traceback without --debug."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    _print_anywhere()
    try:
        result = app(args=words, standalone_mode=False)
        sys.stdout.flush()
        if result == INTERRUPTED:  # typer makes it of Ctrl-C within a command
            sys.stderr.write("interrupted\n")
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except ParsimError as error:
        if debug:
            raise
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
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
def check(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    write_schedule: Annotated[
        Path | None, typer.Option(help="write the plan's actions, for plan.schedule: .csv")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a scenario and say what it resolves to, or file:line:column of what is wrong."""
    from parsim.report.resolved import resolved, resolved_text

    found = load(scenario, overrides, device)
    if as_json:
        print_json(resolved(found))
    else:
        sys.stdout.write(resolved_text(found, str(scenario)))
    if write_schedule is not None:
        from parsim.report.schedule import save_schedule

        save_schedule(found.fixed_plan(), write_schedule, scenario)
        note(f"schedule written to {write_schedule}")


@app.command()
def simulate(  # noqa: PLR0913  one parameter an option
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    events: Annotated[
        bool, typer.Option("--events", help="run the discrete-event tier too and compare")
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option(help="save the timeline, for compare and timeline: .json")
    ] = None,
    contention: Annotated[
        bool, typer.Option("--contention", help="also with links that all traffic shares (tier C)")
    ] = False,
    beside: Beside = None,
    on: On = None,
    jitter_steps: Annotated[
        int | None,
        typer.Option(min=1, help="simulate so many steps with ranks that differ: mean, p50, p99"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the steps that differ")] = 0,
    as_json: AsJson = False,
) -> None:
    """Predict step time, bubble, memory and utilisation of a scenario's plan."""
    from parsim.report.save import check_own_form, save_own_form
    from parsim.search.relax import shortage_message
    from parsim.sim import simulate as predict
    from parsim.validation.evidence import describe, evidence_of

    found = load(scenario, overrides, device)
    plan = found.fixed_plan()
    if timeline is not None:
        check_own_form(timeline, scenario)
    prediction = predict(
        found.job, plan, tier="events" if events else "evaluate", timeline=timeline is not None
    )
    evidence = evidence_of(found.job)
    jobs = placed_jobs(found, on, beside)
    late = _jitter(found, jitter_steps, seed)
    shared = _contention(found, asked=contention, slow=late is not None) if not jobs else None
    both = simulate_together(jobs) if jobs else None
    if as_json:
        more = {} if late is None else {"jitter": late.to_json()}
        more |= {} if shared is None else {"contention": shared.to_json()}
        more |= {} if both is None else {"together": both.to_json()}
        print_json({**prediction.to_json(), "evidence": evidence and evidence.to_json(), **more})
    else:
        from parsim.report.text import prediction_view

        said = describe(evidence, mixed=found.job.mixed)
        show(prediction_view(prediction, usable=prediction.usable, evidence=said))
        _show_more(shared, both, late)
    if timeline is not None and prediction.timeline is not None:
        save_own_form(prediction.timeline, timeline)
        note(f"timeline written to {timeline}")
    if not prediction.fits():
        raise NoFeasiblePlan(shortage_message(found.job, plan))


def _show_more(
    shared: Contention | None, both: JobsTogether | None, late: JitterResult | None
) -> None:
    if both is not None:
        from parsim.report.together import together_view

        show(together_view(both))
    if shared is not None:
        from parsim.report.contention import contention_view

        show(contention_view(shared))
    if late is not None:
        from parsim.report.jitter import jitter_view

        show(jitter_view(late))


def _contention(found: Scenario, *, asked: bool, slow: bool) -> Contention | None:
    """Tier C where it is asked for, and where tier B alone would leave out what was."""
    if asked or found.needs_links:
        return contended(found)
    if not slow or not found.jitter.slow_ranks:
        return None
    try:
        return contended(found)
    except InputError as error:  # the steps with slow ranks were what was asked for
        note(f"note: which links slow ranks leave full is not simulated: {error}")
        return None


def _jitter(found: Scenario, steps: int | None, seed: int) -> JitterResult | None:
    if steps is None:
        if found.jitter.stated:
            note("note: the jitter block is left aside; --jitter-steps 1000 simulates it")
        return None
    from parsim.sim.monte_carlo import simulate_jitter

    with progress("simulating steps") as step:
        return simulate_jitter(
            found.job, found.fixed_plan(), found.jitter, steps=steps, seed=seed, progress=step
        )


@app.command()
def search(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    top: Annotated[int, typer.Option(min=1, help="how many plans to print")] = 10,
    save: Annotated[
        Path | None, typer.Option(help="write the best plan as a scenario file")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, help="seconds; then print the best so far")
    ] = None,
    contention: Annotated[
        bool,
        typer.Option("--contention", help="run the best 5 with shared links and compare the order"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate every legal plan of a scenario and rank those that fit."""
    from parsim.report.save import check_writable, write_text
    from parsim.scenario import scenario_text
    from parsim.search.search import search as find
    from parsim.validation.evidence import describe, evidence_of

    found = load(scenario, overrides, device)
    evidence = evidence_of(found.job)
    space = found.plan_space()
    if save is not None:
        check_writable(save)
    with progress("evaluating plans") as step:
        result = find(found.job, space, top=top, progress=step, time_limit=time_limit)
    shared = _best_contended(found, result) if contention or found.needs_links else None
    if as_json:
        more = {} if shared is None else {"contention": shared.to_json()}
        print_json({**result.to_json(), **more})
    else:
        from parsim.report.text import search_view

        share = 1.0 - space.memory_margin
        limit, *others = (one.usable_memory * share for one in found.job.cluster.devices)
        said = describe(evidence, mixed=found.job.mixed)
        show(search_view(result, usable=limit, others=others, evidence=said))
        if shared is not None:
            from parsim.report.contention import order_view

            show(order_view(shared))
    if shared is not None and shared.warning:
        note(f"warning: {shared.warning}")
    if save is not None:
        write_text(save, scenario_text(found, result.plans[0].plan))
        note(f"best plan written to {save}")


def _best_contended(found: Scenario, result: SearchResult) -> ContendedOrder:
    from parsim.search.contended import contended_order

    with progress("simulating shared links") as step:
        return contended_order(found.job, result, background=found.background, progress=step)


@app.command()
def timeline(  # noqa: PLR0913  one parameter an option
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="scenario, plan or saved timeline")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help=".png, .svg, .html or .json (Perfetto trace)")
    ],
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    memory: Annotated[bool, typer.Option("--memory", help="memory curves below")] = False,
    critical: Annotated[bool, typer.Option("--critical", help="overlay the critical path")] = False,
    until: Annotated[float | None, typer.Option(help="draw the first so many seconds")] = None,
    contention: Annotated[
        bool, typer.Option("--contention", help="on shared links, with their load (.json only)")
    ] = False,
    beside: Beside = None,
    on: On = None,
) -> None:
    """Draw what every pipeline rank does when, and where the bubbles are."""
    from parsim.report.drawable import predicted, saved
    from parsim.report.save import check_other, check_suffix, save_timeline

    check_suffix(output)
    check_other(output, scenario)
    if contention or beside or on:
        from parsim.report.contention import save_contended

        found = load(scenario, overrides, device)
        jobs = placed_jobs(found, on, beside)
        with progress("simulating shared links"):
            save_together(jobs, output) if jobs else save_contended(found, output)
        return note(f"timeline written to {output}")
    drawn, said = saved(scenario, overrides) or predicted(
        load(scenario, overrides, device), output, note
    )
    with progress("drawing"):
        save_timeline(drawn, output, summary=said, memory=memory, critical=critical, until=until)
    note(f"timeline written to {output}")


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
    for said in found.notes:
        note(f"note: {said}")
    if output is not None:
        from parsim.report.overlay import draw_overlay

        draw_overlay(*both, found, path=output)
        note(f"picture written to {output}")
    if as_json:
        print_json(found.to_json())
    else:
        from parsim.report.compare import comparison_view

        show(comparison_view(found))
    if not found.within_tolerance:
        raise ToleranceExceeded(found.verdict)


app.command()(validate)
app.command()(run)
app.command()(calibrate)
app.command()(collectives)
app.add_typer(catalog)
