"""`report.json` and `report.md` of a suite: conditions, errors, and what was left out and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from executor.suite.case_tables import case_table, part_table, shared_table
from executor.suite.results import Amount, Outcome, Pair, Result, covered, spearman, summary
from parsim.report.markdown import markdown_table
from parsim.report.writing import write_text
from parsim.units import percent

SCHEMA_VERSION = 1

QUIET_DRIFT = 0.03
"""Where a reference product moved by more than this, the machine was not quiet."""


SUMMED = ("forward", "backward", "optimizer", "exposed_communication")
"""Parts of a step whose errors are summed up; the others are zero in most cases."""

LONG_NAMES = {"step_time_of_min": "step time, against the fastest step"}

PICTURES = {
    "scatter.png": "Predicted against measured step time.",
    "errors.png": "Signed errors by case; a whisker is the median absolute deviation of the steps.",
}


def report_document(outcome: Outcome) -> dict[str, Any]:
    """The document of `report.json`."""
    by_model: dict[str, list[Result]] = {}
    for result in outcome.counted:
        by_model.setdefault(result.model, []).append(result)
    return {
        "schema_version": SCHEMA_VERSION,
        "conditions": conditions(outcome),
        "predicted_before_running": outcome.predicted_first,
        "summary": {
            **{name: summary(outcome.counted, amount) for name, amount in amounts().items()},
            "intervals": covered(outcome.counted),
            "spearman": spearman(outcome.counted),
            "spearman_by_model": {name: spearman(of) for name, of in by_model.items()},
        },
        "cases": [result.to_json() for result in outcome.results],
        "skipped": outcome.left_out("skipped"),
        "failed": outcome.left_out("failed"),
        "calibration": outcome.calibration,
    }


def conditions(outcome: Outcome) -> dict[str, Any]:
    """What was measured with: no names of machines, no paths."""
    machine, device = outcome.progress["machine"], outcome.calibration["device"]
    drift = device.get("reference_drift")
    return {
        "date": outcome.progress["began_at"][:10],
        "device": device["name"],
        "count": machine["count"],
        "torch": machine["torch"],
        "cuda": machine["cuda"],
        "nccl": ".".join(map(str, machine["nccl"])),
        "python": machine["python"],
        "backend": machine["backend"],
        "precisions": sorted({result.precision for result in outcome.results}),
        "threads_per_rank": 1,
        "warmup_steps": outcome.progress["warmup"],
        "load_before": machine["load"],
        "reference_drift": drift,
        "quiet": None if drift is None else drift <= QUIET_DRIFT,
        "core_paces": [result.core_pace for result in outcome.results if result.core_pace],
        "seconds": outcome.progress.get("seconds"),
    }


def amounts() -> dict[str, Amount]:
    """What errors are summed up of: step time, peak memory, and the parts of a step."""

    def part(name: str) -> Amount:
        return lambda result: result.kinds.get(name)

    return {
        "step_time": lambda result: result.step_time,
        "step_time_of_min": lambda r: Pair(predicted=r.step_time.predicted, measured=r.least),
        "peak_memory": lambda result: result.peak,
        **{name: part(name) for name in SUMMED},
    }


def write_report(out: Path, outcome: Outcome, pictures: Iterable[str] = ()) -> None:
    """Write `report.json` and `report.md`, which shows the pictures named."""
    document = report_document(outcome)
    write_text(out / "report.json", json.dumps(document, indent=2) + "\n")
    write_text(out / "report.md", "\n".join(_lines(outcome, document, pictures)) + "\n")


def _lines(outcome: Outcome, document: Mapping[str, Any], pictures: Iterable[str]) -> Iterator[str]:
    yield f"# Predicted and measured steps: {document['conditions']['device']}"
    yield ""
    yield "Written by `python -m executor.suite`; do not edit. Errors are (predicted - measured) /"
    yield "measured; the measured step time is the median. `predictions.json` was written"
    first = "before" if outcome.predicted_first else "NOT before"
    yield f"{first} the first case ran, with the constants of `device.yaml`."
    yield "Any case runs again with `parsim run <case>/scenario.yaml`."
    for title, lines in (
        ("Conditions", _conditions(document["conditions"])),
        ("Accuracy", _accuracy(document["summary"], outcome.counted)),
        ("Step time and peak memory", case_table(outcome.counted)),
        ("Parts of a step", part_table(outcome.counted)),
        ("Ranks that share one device", shared_table(outcome.results)),
        ("Left out", _left_out(document)),
        ("Residuals of the calibration", _residuals(outcome.calibration["residuals"])),
        ("Pictures", _pictures(pictures)),
    ):
        written = list(lines)
        if written:
            yield from ("", f"## {title}", "", *written)


def _conditions(facts_by_name: Mapping[str, Any]) -> Iterator[str]:
    drift, load = facts_by_name["reference_drift"], facts_by_name["load_before"]
    quiet = {None: "not known", True: "yes", False: "NO"}[facts_by_name["quiet"]]
    moved = "" if drift is None else f", the reference product moved by {percent(drift)}"
    names = {"torch": "torch", "cuda": "CUDA", "nccl": "NCCL", "python": "Python"}
    versions = ((title, facts_by_name[name]) for name, title in names.items())
    software = [f"{title} {version}" for title, version in versions if version]
    facts = {
        "date": facts_by_name["date"],
        "device": f"{facts_by_name['device']}, {facts_by_name['count']} of them",
        "software": ", ".join(software),
        "backend": facts_by_name["backend"],
        "precision": ", ".join(facts_by_name["precisions"]) or "-",
        "threads": f"{facts_by_name['threads_per_rank']} a rank",
        "quiet": f"{quiet}{moved} while calibrating; load {load:.2f} before",
        **_paces(facts_by_name["core_paces"]),
        "steps": f"n in the table, after {facts_by_name['warmup_steps']} that are not timed",
    }
    if facts_by_name["seconds"] is not None:
        facts["suite"] = f"{facts_by_name['seconds']:.0f} s in all"
    yield from (f"- {name}: {value}" for name, value in facts.items())


def _paces(paces: Sequence[float]) -> dict[str, str]:
    """How fast cores were while cases ran; nothing of GPUs."""
    if not paces:
        return {}
    low, middle, high = min(paces), median(paces), max(paces)
    return {
        "cores": f"in cases they took {middle:.2f} times as long as at their quickest while they "
        f"were calibrated ({low:.2f} to {high:.2f})"
    }


def _accuracy(summaries: Mapping[str, Any], counted: Sequence[Result]) -> Iterator[str]:
    if not counted:
        yield "No case has run."
        return
    yield from markdown_table(
        "error of | n | median | largest | bias",
        (_error_cells(name, summaries[name]) for name in amounts() if summaries[name]),
    )
    yield ""
    ranked = {"all cases": summaries["spearman"], **summaries["spearman_by_model"]}
    known = [f"{name} {value:.2f}" for name, value in ranked.items() if value is not None]
    if known:
        yield f"Ranking of step times (Spearman): {', '.join(known)}."
    if intervals := summaries["intervals"]:
        yield f"80 % intervals hold {intervals['inside']} of {intervals['n']} measured steps."


def _error_cells(name: str, errors: Mapping[str, Any]) -> list[object]:
    sizes = (percent(errors[key]) for key in ("median_abs", "max_abs"))
    words = LONG_NAMES.get(name, name.replace("_", " "))
    return [words, errors["n"], *sizes, percent(errors["bias"], signed=True)]


def _left_out(document: Mapping[str, Any]) -> Iterator[str]:
    for status in ("failed", "skipped"):
        for name, reason in document[status].items():
            yield f"- {name} {status}: {reason}"


def _residuals(parts: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    yield "How far single kernels and links are off after the fit, without sign:"
    yield ""
    yield from markdown_table(
        "kind | n | median | p90 | largest",
        (
            (
                name,
                f"{errors['n']:.0f}",
                *(percent(errors[key]) for key in ("median", "p90", "max")),
            )
            for part in parts.values()
            for name, errors in part.items()
        ),
    )


def _pictures(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        caption = PICTURES.get(name, "Predicted above measured, one step.")
        yield from (f"![{caption}]({name})", "")
