"""Fills the generated blocks of the README and the evidence file: no number in them is typed.

A block stands between `<!-- NAME:begin ... -->` and `<!-- NAME:end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from parsim.errors import InputError
from parsim.report.accuracy import LeftOut, interval_table, summary_lines
from parsim.report.accuracy_files import write_accuracy
from parsim.scenario import load_scenario
from parsim.search import search
from parsim.sim.known_errors import read_errors, shipped_errors
from parsim.units import format_bytes, format_seconds
from parsim.validation.compare import Validation, shipped_tables, validate
from parsim.validation.evidence import evidence_text
from parsim.validation.interval_leave_out import leave_sources_out
from parsim.validation.intervals import errors_text, gather_errors, peaks_of, residuals_of

MAIN_SCENARIO = "scenarios/gpt3-175b-dgx-a100.yaml"


def fill(text: str, name: str, body: str) -> str:
    """Replace the body of one block.

    Raises:
        InputError: the block's marks are missing.
    """
    pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if not pattern.search(text):
        raise InputError(f"no block <!-- {name}:begin --> ... <!-- {name}:end -->")
    return pattern.sub(lambda found: f"{found[1]}{body}\n{found[2]}", text)


def search_block() -> str:
    """The first plans of the main job."""
    scenario = load_scenario(MAIN_SCENARIO)
    if scenario.space is None:
        raise InputError(f"{MAIN_SCENARIO}: no search block")
    result = search(scenario.job, scenario.space, top=5)
    counts = result.counts
    lines = [
        f"`parsim search {MAIN_SCENARIO}` looks at {counts['enumerated']:,} plans "
        f"({counts['illegal']:,} illegal, {counts['out_of_memory']:,} out of memory) and ranks:",
        "",
        "| plan | step time | MFU | bubble | peak memory |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {one.plan.label()} | {format_seconds(one.step_time)} | {100 * one.mfu:.1f} % "
        f"| {100 * one.bubble_fraction:.1f} % | {format_bytes(one.peak_allocated)} |"
        for one in result.plans
    ]
    return "\n".join(lines)


def accuracy_block(found: Validation) -> str:
    """The summary of all shipped tables, step time and memory."""
    return "\n".join(["Step time:", "", *summary_lines(found, memory=False), "",
                      "Peak memory:", "", *summary_lines(found, memory=True)])  # fmt: skip


def intervals_block(found: Validation, left_out: LeftOut) -> str:
    """Coverage and width of the intervals over all shipped rows."""
    return "\n".join(interval_table(found, left_out))


def main(
    readme: Path, evidence: Path, intervals: Path, reports: Path, accuracy: Path | None = None
) -> None:
    """Fill the blocks of the README; write what predictions cite as evidence and interval.

    Every row is predicted once: its interval follows from what the rows together say. `accuracy`
    is where the report of all rows goes.
    """
    rows = validate(shipped_tables())
    runs = residuals_of(rows)
    suites = sorted(reports.glob("*/report.json"))
    figures = errors_text(gather_errors(runs, suites, peaks_of(rows)))
    intervals.write_text(figures, encoding="utf-8")
    shipped_errors.cache_clear()
    errors = read_errors(json.loads(figures))
    found = rows.with_errors(errors)
    left_out = leave_sources_out(runs, errors)
    evidence.write_text(evidence_text(found), encoding="utf-8")
    text = fill(readme.read_text(encoding="utf-8"), "search", search_block())
    text = fill(text, "accuracy", accuracy_block(found))
    readme.write_text(fill(text, "intervals", intervals_block(found, left_out)), encoding="utf-8")
    if accuracy is not None:
        command = f"parsim validate --report {accuracy}"
        write_accuracy(found, accuracy, command=command, left_out=left_out)


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:6]))
