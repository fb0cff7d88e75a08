"""`parsim timeline` and `compare`: pictures of timelines, and two of them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.contention import Beside, On, placed_jobs, save_contended
from parsim.cli.terminal import (
    AsJson,
    CalibratedDevice,
    Overrides,
    load,
    note,
    note_memory,
    print_json,
    progress,
    show,
)
from parsim.errors import InputError, ToleranceExceeded

if TYPE_CHECKING:
    from parsim.scenario import Scenario
    from parsim.sim import Prediction
    from parsim.timelines.timeline import Timeline

Source = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="scenario, plan or saved timeline")
]
Output = Annotated[
    Path, typer.Option("-o", "--output", help=".png, .svg, .html or .json (Perfetto trace)")
]
Memory = Annotated[bool, typer.Option("--memory", help="memory curves below")]
Critical = Annotated[bool, typer.Option("--critical", help="overlay the critical path")]
Until = Annotated[float | None, typer.Option(help="draw the first so many seconds")]
ContendedTrace = Annotated[
    bool, typer.Option("--contention", help="on shared links, with their load (.json only)")
]
Compared = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES", help="a predicted and a measured timeline, plans (.yaml), runs"
    ),
]
Tolerance = Annotated[
    float, typer.Option(help="largest error of step time and peak memory; more is exit code 4")
]
Overlay = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="picture: .png or .svg; of plans also .csv, .parquet"),
]


def timeline(  # noqa: PLR0913  one parameter an option
    scenario: Source,
    output: Output,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    memory: Memory = False,
    critical: Critical = False,
    until: Until = None,
    contention: ContendedTrace = False,
    beside: Beside = None,
    on: On = None,
) -> None:
    """Draw what every pipeline rank does when, and where the bubbles are."""
    from parsim.report.text.summary import summary_of
    from parsim.report.timeline.files import check_suffix, save_timeline
    from parsim.report.writing import check_other

    check_suffix(output)
    check_other(output, scenario)
    if contention or beside or on:
        loaded = load(scenario, overrides, device)
        jobs = placed_jobs(loaded, on, beside)
        with progress("simulating shared links"):
            save_contended(loaded, jobs, output)
    else:
        prediction, drawn = _to_draw(scenario, overrides, device, output)
        summary = summary_of(drawn, mfu=prediction.mfu if prediction else None)
        with progress("drawing"):
            save_timeline(
                drawn, output, summary=summary, memory=memory, critical=critical, until=until
            )
        if prediction is not None:
            _answer(prediction, drawn, scenario, output)
    note(f"timeline written to {output}")


def _to_draw(
    source: Path, overrides: list[str] | None, device: Path | None, output: Path
) -> tuple[Prediction | None, Timeline]:
    """A saved timeline as it is, or a scenario's predicted one with its prediction."""
    from parsim.timelines.reader import is_timeline, load_timeline

    if not is_timeline(source):
        return _predicted(load(source, overrides, device), output)
    if overrides:
        raise InputError(f"{source}: a saved timeline has no fields to --set; leave --set out")
    return None, load_timeline(source)


def _answer(prediction: Prediction, drawn: Timeline, source: Path, output: Path) -> None:
    """Print the box with the plan, its step time and interval, and where the picture is."""
    from parsim.report.text.prediction import answer_view
    from parsim.report.text.summary import headline

    title = headline(drawn)
    show(answer_view(prediction, plan_file=str(source), picture=str(output), title=title))


def _predicted(scenario: Scenario, output: Path) -> tuple[Prediction, Timeline]:
    """The prediction of a scenario's plan, and its timeline; a plan too large is noted."""
    from parsim import api
    from parsim.report.writing import check_writable

    scenario.fixed_plan()
    check_writable(output)
    prediction = api.simulate(scenario, timeline=True)
    note_memory(prediction)
    if prediction.timeline is None:
        raise RuntimeError("simulate returned no timeline")
    return prediction, prediction.timeline


def compare(
    files: Compared,
    tolerance: Tolerance = 0.1,
    output: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """Lay a measured timeline over a predicted one, or set plans or runs side by side."""
    if len(files) > 1 and all(file.suffix in (".yaml", ".yml") for file in files):
        _compare_plans(files, output, as_json)
        return
    from parsim.comparison.curves import is_run

    for file in files:
        _check_ended(file)
    if is_run(files[0]):
        _compare_runs(files, output, as_json)
        return
    if len(files) != 2:
        raise InputError(
            f"compare takes two timelines (.json), or two and more plans (.yaml) or run.json; "
            f"{len(files)} "
            f"{'file is' if len(files) == 1 else 'files are'} given"
        )
    _compare_timelines(files[0], files[1], tolerance, output, as_json)


def _check_ended(file: Path) -> None:
    """Say of a file that a killed run did not come to how far it came."""
    steps = file.parent / "steps.jsonl"
    if file.exists() or file.name not in ("run.json", "timeline.json") or not steps.is_file():
        return
    count = steps.read_text(encoding="utf-8", errors="replace").count("\n")
    raise InputError(
        f"{file} is missing: the run did not end; {steps} has its {count} steps, and it goes on "
        f"with --resume where it kept checkpoints"
    )


def _compare_plans(files: list[Path], output: Path | None, as_json: bool) -> None:
    """One row a plan, the first as what the others are measured by; a table or a picture too."""
    from parsim.cli.planning.sweep import present, run_all
    from parsim.report.writing import check_other
    from parsim.sweeps import cases_of_files
    from parsim.sweeps.table_file import SUFFIXES, check_suffix

    table = output if output is not None and output.suffix.lower() in SUFFIXES else None
    picture = output if table is None else None
    if table is not None:
        check_suffix(table)
        check_other(table, *files)
    result = run_all(cases_of_files(files, {}), table, picture, 1)
    present(result, picture, as_json=as_json)


def _compare_runs(files: list[Path], picture: Path | None, as_json: bool) -> None:
    """Losses of runs against seconds and samples."""
    from parsim.comparison.curves import compare_curves

    comparison = compare_curves(files)
    for remark in comparison.notes:
        note(f"note: {remark}")
    if picture is not None:
        from parsim.report.picture.loss import draw_curves
        from parsim.report.picture.saving import check_picture

        check_picture(picture)
        draw_curves(comparison, picture)
        note(f"picture written to {picture}")
    if as_json:
        print_json(comparison.to_json())
        return
    from parsim.report.text.measured.timelines import curves_view

    show(curves_view(comparison))


def _compare_timelines(
    predicted: Path, measured: Path, tolerance: float, output: Path | None, as_json: bool
) -> None:
    """Compare two timelines, and print, draw or save what they differ in."""
    from parsim import api
    from parsim.timelines.reader import load_timeline

    both = load_timeline(predicted), load_timeline(measured)
    comparison = api.compare(*both, tolerance=tolerance)
    for remark in comparison.notes:
        note(f"note: {remark}")
    if output is not None:
        from parsim.report.picture.overlay import draw_overlay

        draw_overlay(*both, comparison, path=output)
        note(f"picture written to {output}")
    if as_json:
        print_json(comparison.to_json())
    else:
        from parsim.report.text.measured.timelines import comparison_view

        show(comparison_view(comparison))
    if not comparison.within_tolerance:
        raise ToleranceExceeded(comparison.headline)
