"""Fills the generated blocks of README and docs and the evidence file: no number is typed.

python -m parsim.fitting.reports.readme EVIDENCE LEFT_OUT INTERVALS SUITES ACCURACY PICTURE PAGE...
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from parsim.errors import InputError
from parsim.fitting.intervals.figures import errors_text, gather_errors, peaks_of, residuals_of
from parsim.fitting.intervals.levels import Novelty
from parsim.fitting.reports.evidence import evidence_text
from parsim.planner import search
from parsim.planner.result import SearchResult
from parsim.report.accuracy.accuracy import interval_table, summary_lines
from parsim.report.accuracy.blind import blind_lines
from parsim.report.accuracy.files import write_accuracy
from parsim.report.blocks import fill_pages
from parsim.report.picture.gantt import draw_timeline
from parsim.report.text.answer import WIDTH, answer_view
from parsim.report.text.summary import headline
from parsim.report.text.tables import percent
from parsim.scenario import load_scenario
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.known_errors import read_errors, shipped_errors
from parsim.units import format_bytes, format_seconds
from parsim.validation.coverage import Coverage, LeftOut, left_out_text
from parsim.validation.tables import blind_tables, shipped_tables
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
        f"({counts['illegal']:,} illegal, {counts['out_of_memory']:,} do not fit, "
        f"{counts['tight']:,} tight) and ranks:",
        "",
        "| plan | step time | MFU | bubble | peak memory |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {ranked.plan.label()} | {format_seconds(ranked.step_time)} | {100 * ranked.mfu:.1f} % "
        f"| {100 * ranked.bubble_fraction:.1f} % | {format_bytes(ranked.peak_allocated)} |"
        for ranked in result.plans
    ]
    return "\n".join(lines)


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


def blind_block(blind: Validation) -> str:
    """Errors of tables that no fit and no interval may see, first and today."""
    return "\n".join(blind_lines(blind))


def summary_block(rows: Validation, left_out: LeftOut, blind: Validation) -> str:
    """Accuracy in five lines: known runs, what is new, and rows that nobody had seen."""
    head = ["| step time of | runs | median error | inside the 80 % interval | its half width |"]
    lines = [
        f"| {what} | {judged.n:,} | {percent(judged.error)} | {percent(judged.covered)} "
        f"| {percent(judged.half_width)} |"
        for what, judged in _judged(rows, left_out, blind)
    ]
    return "\n".join([*head, "|---|--:|--:|--:|--:|", *lines])


NEW = {
    "model, dense": "a new dense model",
    "model, experts": "a new mixture of experts",
    "device": "a device nobody has measured",
}
"""Levels of what can be new that the summary shows, and what it calls them."""


def _judged(
    rows: Validation, left_out: LeftOut, blind: Validation
) -> Iterator[tuple[str, Coverage]]:
    """The summary's lines; constants and intervals have seen only the runs of the first one."""
    yield "published runs that intervals were made from (in sample)", rows.coverage(None)
    levels = {level.level: level.coverage for level in left_out.levels}
    for level, words in NEW.items():
        yield f"{words} (its runs left out)", levels[level]
    yield "MLPerf's GPT-3 175B (blind: in no fit)", blind.coverage("mlperf_gpt3_175b")


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
    novelty = Novelty(runs)
    figures = errors_text(novelty.figures(gather_errors(runs, reports, peaks_of(rows))))
    intervals.write_text(figures, encoding="utf-8")
    shipped_errors.cache_clear()
    errors = read_errors(json.loads(figures))
    judged, coverages = rows.with_errors(errors), novelty.left_out(errors)
    evidence.write_text(evidence_text(judged), encoding="utf-8")
    left_out.write_text(left_out_text(coverages), encoding="utf-8")
    blind = validate(blind_tables()).with_errors(errors)
    fill_pages(pages, {**answer_blocks(picture), **accuracy_blocks(judged, coverages, blind)})
    command = f"parsim validate --report {accuracy}"
    write_accuracy(judged, accuracy, command=command, left_out=coverages)


def accuracy_blocks(rows: Validation, left_out: LeftOut, blind: Validation) -> dict[str, str]:
    """What the blocks on accuracy hold, by name."""
    return {
        "summary": summary_block(rows, left_out, blind),
        "accuracy": accuracy_block(rows),
        "intervals": intervals_block(rows, left_out),
        "blind": blind_block(blind),
    }


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
