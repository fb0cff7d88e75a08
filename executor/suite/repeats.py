"""Several whole suites one behind the other: how often the intervals of each case held its step.

OUT/run-1 ... OUT/run-N      each a suite of its own, with its own calibration
OUT/coverage.md, .json       by case: errors of all runs, and how many lay in their interval
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from executor.suite.results import Result, read
from parsim.report.markdown import markdown_table
from parsim.report.writing import write_text
from parsim.units import percent

AIM = 0.8
"""Share of measured steps that intervals are to hold."""


def folders(out: Path, count: int) -> list[Path]:
    """Where the suites of a repetition are."""
    return [out / f"run-{number}" for number in range(1, count + 1)]


def coverage(runs: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """Over all runs of each case: errors of the median step, and how many its intervals held.

    A case that a run left out counts where it ran. `held` and `n` are those with an interval.
    """
    every: dict[str, list[Result]] = {}
    for results in runs:
        for result in results:
            every.setdefault(result.name, []).append(result)
    cases = {name: _of_case(results) for name, results in every.items()}
    within, judged = (sum(case[key] for case in cases.values()) for key in ("held", "n"))
    return {
        "runs": len(runs),
        "cases": cases,
        "held": within,
        "n": judged,
        "share": within / judged if judged else None,
        "aim": AIM,
    }


def _of_case(results: Sequence[Result]) -> dict[str, Any]:
    errors = [result.step_time.error for result in results if result.step_time.error is not None]
    judged = [result.inside for result in results if result.inside is not None]
    memory = [abs(result.peak.error) for result in results if result.peak.error is not None]
    return {
        "errors": errors,
        "median_abs": median(map(abs, errors)) if errors else None,
        "worst_memory": max(memory, default=None),
        "held": sum(judged),
        "n": len(judged),
    }


def write_coverage(out: Path, count: int) -> dict[str, Any]:
    """Read the suites of a repetition, and write both files."""
    document = coverage([read(folder).counted for folder in folders(out, count)])
    write_text(out / "coverage.json", json.dumps(document, indent=2) + "\n")
    write_text(out / "coverage.md", "\n".join(_lines(document)) + "\n")
    return document


def _lines(document: dict[str, Any]) -> list[str]:
    share = document["share"]
    told = "no interval was predicted" if share is None else f"{share:.0%} of {document['n']}"
    lines = [
        f"# {document['runs']} suites",
        "",
        f"Measured steps in their 80 % interval: {told}.",
        "",
    ]
    rows = []
    for name, case in document["cases"].items():
        middle, memory = (percent(case[key]) for key in ("median_abs", "worst_memory"))
        errors = " ".join(percent(error, signed=True) for error in case["errors"])
        rows.append((name, f"{case['held']} of {case['n']}", middle, errors, memory))
    columns = "case | in its interval | median error | errors | worst memory"
    return [*lines, *markdown_table(columns, rows, words=range(5))]
