"""Fills the generated blocks of README and docs and the evidence file: no number is typed.

python -m parsim.fitting.reports.readme EVIDENCE LEFT_OUT INTERVALS SUITES ACCURACY PICTURE PAGE...
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

from rich.console import Console

from parsim.errors import InputError
from parsim.fitting.intervals.figures import (
    errors_text,
    gather_errors,
    peaks_of,
    residuals_of,
    site_runs,
)
from parsim.fitting.intervals.novelty import Novelty
from parsim.fitting.intervals.sites import with_sites
from parsim.fitting.reports.evidence import evidence_text
from parsim.planner import search
from parsim.planner.result import SearchResult
from parsim.report.accuracy.accuracy import summary_lines
from parsim.report.accuracy.files import write_accuracy
from parsim.report.accuracy.intervals import interval_table
from parsim.report.markdown import markdown_table
from parsim.report.picture.gantt import draw_timeline
from parsim.report.text.prediction import WIDTH, answer_view
from parsim.report.text.summary import headline
from parsim.report.writing import fill_pages
from parsim.scenario import load_scenario
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.known_errors import read_again, read_errors
from parsim.units import format_bytes, format_seconds
from parsim.validation.coverage import LeftOut, left_out_text
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import Validation, validate

MAIN_SCENARIO = "scenarios/gpt3-175b-dgx-a100.yaml"
PICTURE_INCHES = 12.0
"""Narrower than a timeline is by default: a page of text shrinks it."""


def answer_blocks(picture: Path) -> dict[str, str]:
    """What `search` and `timeline` print of the main job, as blocks; draw the best plan."""
    scenario = load_scenario(MAIN_SCENARIO)
    if scenario.space is None:
        raise InputError(f"{MAIN_SCENARIO}: no search block")
    result = search(scenario.job, scenario.space, top=3)
    best = simulate(scenario.job, result.plans[0].plan, timeline=True)
    if best.timeline is None:
        raise RuntimeError("simulate returned no timeline")
    title = headline(best.timeline)
    draw_timeline(best.timeline, path=picture, title=title, width=PICTURE_INCHES)
    return {"search": search_block(result), "answer": answer_block(best, title)}


def search_block(result: SearchResult) -> str:
    """The first plans of the main job."""
    counts = result.counts
    lines = [
        f"`parsim search` looks at {counts['enumerated']:,} plans "
        f"({counts['illegal']:,} illegal; of the others "
        f"{counts['out_of_memory']:,} do not fit, {counts['tight']:,} tight, "
        f"{counts['slower']:,} proven slower, fitting or not) and ranks:",
        "",
    ]
    cells = (
        (
            ranked.plan.label(),
            format_seconds(ranked.step_time),
            f"{100 * ranked.mfu:.1f} %",
            f"{100 * ranked.bubble_fraction:.1f} %",
            format_bytes(ranked.peak_allocated),
        )
        for ranked in result.plans
    )
    columns = "plan | step time | MFU | bubble | peak memory"
    return "\n".join([*lines, *markdown_table(columns, cells)])


def answer_block(prediction: Prediction, title: str) -> str:
    """The box that `timeline` prints of the best plan."""
    screen = Console(width=WIDTH, file=io.StringIO(), no_color=True)
    with screen.capture() as text:
        screen.print(
            answer_view(prediction, plan_file="best.yaml", picture="best.png", title=title)
        )
    return f"```\n{text.get().rstrip()}\n```"


def accuracy_block(rows: Validation) -> str:
    """The summary of all shipped tables, step time and memory."""
    step_time = ["Step time:", "", *summary_lines(rows, memory=False)]
    return "\n".join([*step_time, "", "Peak memory:", "", *summary_lines(rows, memory=True)])


def intervals_block(rows: Validation, left_out: LeftOut) -> str:
    """Coverage and width of the intervals over all shipped rows."""
    return "\n".join(interval_table(rows, left_out))


def main(
    evidence: Path,
    left_out: Path,
    intervals: Path,
    suites: Path,
    accuracy: Path,
    picture: Path,
    *pages: Path,
) -> None:
    """Fill the blocks of pages; write the figures that predictions and reports cite.

    Every row is predicted once: its interval follows from what the rows together say.

    Args:
        evidence: errors per device and software.
        left_out: coverage of intervals with each table left out.
        intervals: what intervals follow from.
        suites: the folder of the hardware suite's reports, which is read.
        accuracy: where the report of all rows goes.
        picture: where the timeline of the main job's best plan goes.
        pages: README and docs; each block is filled in the one that has it.
    """
    rows = validate(shipped_tables())
    runs = residuals_of(rows)
    reports = sorted(suites.glob("*/report.json"))
    novelty = Novelty(runs, gather_errors(runs, reports, peaks_of(rows)))
    figures = errors_text(with_sites(novelty.figures(), runs, site_runs(rows)))
    intervals.write_text(figures, encoding="utf-8")
    read_again()
    errors = read_errors(json.loads(figures))
    judged, coverages = rows.with_errors(errors), novelty.left_out()
    evidence.write_text(evidence_text(judged), encoding="utf-8")
    left_out.write_text(left_out_text(coverages), encoding="utf-8")
    fill_pages(pages, {**answer_blocks(picture), **accuracy_blocks(judged, coverages)})
    command = f"parsim validate --report {accuracy}"
    write_accuracy(judged, accuracy, command=command, left_out=coverages)


def accuracy_blocks(rows: Validation, left_out: LeftOut) -> dict[str, str]:
    """What the blocks on accuracy hold, by name."""
    return {
        "accuracy": accuracy_block(rows),
        "intervals": intervals_block(rows, left_out),
    }


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
