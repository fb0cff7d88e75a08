"""Fills the generated blocks of the README and the evidence file: no number in them is typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from parsim.errors import InputError
from parsim.fitting.intervals.figures import errors_text, gather_errors, peaks_of, residuals_of
from parsim.fitting.intervals.levels import Novelty
from parsim.fitting.reports.evidence import evidence_text
from parsim.planner import search
from parsim.report.accuracy.accuracy import interval_table, summary_lines
from parsim.report.accuracy.files import write_accuracy
from parsim.report.blocks import fill
from parsim.scenario import load_scenario
from parsim.sim.confidence.known_errors import read_errors, shipped_errors
from parsim.units import format_bytes, format_seconds
from parsim.validation.coverage import LeftOut, left_out_text
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import Validation, validate

MAIN_SCENARIO = "scenarios/gpt3-175b-dgx-a100.yaml"


def search_block() -> str:
    """The first plans of the main job."""
    scenario = load_scenario(MAIN_SCENARIO)
    if scenario.space is None:
        raise InputError(f"{MAIN_SCENARIO}: no search block")
    result = search(scenario.job, scenario.space, top=5)
    counts = result.counts
    lines = [
        f"`parsim search {MAIN_SCENARIO}` looks at {counts['enumerated']:,} plans "
        f"({counts['illegal']:,} illegal, {counts['out_of_memory']:,} do not fit, "
        f"{counts['tight']:,} tight, {counts['slower']:,} slower by a lower bound) and ranks:",
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


def accuracy_block(rows: Validation) -> str:
    """The summary of all shipped tables, step time and memory."""
    step_time = ["Step time:", "", *summary_lines(rows, memory=False)]
    return "\n".join([*step_time, "", "Peak memory:", "", *summary_lines(rows, memory=True)])


def intervals_block(rows: Validation, left_out: LeftOut) -> str:
    """Coverage and width of the intervals over all shipped rows."""
    return "\n".join(interval_table(rows, left_out))


def main(
    readme: Path,
    evidence: Path,
    left_out: Path,
    intervals: Path,
    suites: Path,
    accuracy: Path | None = None,
) -> None:
    """Fill the blocks of the README; write the figures that predictions and reports cite.

    Every row is predicted once: its interval follows from what the rows together say.

    Args:
        readme: its blocks are filled.
        evidence: errors per device and software.
        left_out: coverage of intervals with each table left out.
        intervals: what intervals follow from.
        suites: the folder of the hardware suite's reports, which is read.
        accuracy: where the report of all rows goes.
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
    fill_readme(readme, judged, coverages)
    if accuracy is not None:
        command = f"parsim validate --report {accuracy}"
        write_accuracy(judged, accuracy, command=command, left_out=coverages)


def fill_readme(readme: Path, rows: Validation, left_out: LeftOut) -> None:
    """Write the README's blocks anew."""
    text = fill(readme.read_text(encoding="utf-8"), "search", search_block())
    text = fill(text, "accuracy", accuracy_block(rows))
    readme.write_text(fill(text, "intervals", intervals_block(rows, left_out)), encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:7]))
