"""`parsim timeline` and `compare`: pictures of timelines, and two of them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.cli_contention import Beside, On, placed_jobs, save_together
from parsim.errors import ToleranceExceeded
from parsim.terminal import (
    AsJson,
    CalibratedDevice,
    Overrides,
    load,
    note,
    print_json,
    progress,
    show,
)


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
