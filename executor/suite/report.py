"""`report.json` and `report.md` of a suite: conditions, errors, and what was left out and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from executor.suite.predict import KINDS
from executor.suite.results import Amount, Found, Pair, Result, spearman, summary
from parsim.report.save import write_text
from parsim.report.text import percent
from parsim.units import format_seconds

SCHEMA_VERSION = 1

QUIET_DRIFT = 0.03
"""Where a reference product moved by more than this, the machine was not quiet."""

NOISY = 0.03
"""A case whose steps deviate by more than this share of their median is marked."""

SUMMED = ("forward", "backward", "optimizer", "exposed_communication")
"""Parts of a step whose errors are summed up; the others are zero in most cases."""

PICTURES = {
    "scatter.png": "Predicted against measured step time.",
    "errors.png": "Signed errors by case; a whisker is the median absolute deviation of the steps.",
}


def report_document(found: Found) -> dict[str, Any]:
    """The document of `report.json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "conditions": conditions(found),
        "predicted_before_running": found.predicted_first,
        "summary": {
            **{name: summary(found.counted, amount) for name, amount in amounts().items()},
            "spearman": spearman(found.counted),
            "spearman_by_model": {name: spearman(of) for name, of in by_model(found.counted)},
        },
        "cases": [result.to_json() for result in found.results],
        "skipped": found.left_out("skipped"),
        "failed": found.left_out("failed"),
        "calibration": found.calibration,
    }


def conditions(found: Found) -> dict[str, Any]:
    """What was measured with: no names of machines, no paths."""
    machine, device = found.progress["machine"], found.calibration["device"]
    drift = device.get("reference_drift")
    return {
        "date": found.progress["began_at"][:10],
        "device": device["name"],
        "count": machine["count"],
        "torch": machine["torch"],
        "cuda": machine["cuda"],
        "nccl": ".".join(map(str, machine["nccl"])),
        "python": machine["python"],
        "backend": machine["backend"],
        "precisions": sorted({result.precision for result in found.results}),
        "threads_per_rank": 1,
        "warmup_steps": found.progress["warmup"],
        "load_before": machine["load"],
        "reference_drift": drift,
        "quiet": None if drift is None else drift <= QUIET_DRIFT,
        "seconds": found.progress.get("seconds"),
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


def by_model(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    """The results of each model, in the order of the suite."""
    for name in dict.fromkeys(result.model for result in results):
        yield name, [result for result in results if result.model == name]


def write_report(out: Path, found: Found, pictures: Iterable[str] = ()) -> None:
    """Write `report.json` and `report.md`, which shows the pictures named."""
    document = report_document(found)
    write_text(out / "report.json", json.dumps(document, indent=2) + "\n")
    write_text(out / "report.md", "\n".join(_lines(found, document, pictures)) + "\n")


def _lines(found: Found, document: Mapping[str, Any], pictures: Iterable[str]) -> Iterator[str]:
    yield f"# Predicted and measured steps: {document['conditions']['device']}"
    yield ""
    yield "Written by `python -m executor.suite`; do not edit. Errors are (predicted - measured) /"
    yield "measured; the measured step time is the median. `predictions.json` was written"
    first = "before" if found.predicted_first else "NOT before"
    yield f"{first} the first case ran, with the constants of `device.yaml`."
    yield "Any case runs again with `parsim run <case>/scenario.yaml`."
    for title, lines in (
        ("Conditions", _conditions(document["conditions"])),
        ("Accuracy", _accuracy(document["summary"], found.counted)),
        ("Step time and peak memory", _cases(found.counted)),
        ("Parts of a step", _parts(found.counted)),
        ("Ranks that share one device", _shared(found.results)),
        ("Left out", _left_out(document)),
        ("Residuals of the calibration", _residuals(found.calibration["residuals"])),
        ("Pictures", _pictures(pictures)),
    ):
        written = list(lines)
        if written:
            yield from ("", f"## {title}", "", *written)


def _conditions(said: Mapping[str, Any]) -> Iterator[str]:
    drift, load = said["reference_drift"], said["load_before"]
    quiet = {None: "not known", True: "yes", False: "NO"}[said["quiet"]]
    moved = "" if drift is None else f", the reference product moved by {percent(drift)}"
    facts = {
        "date": said["date"],
        "device": f"{said['device']}, {said['count']} of them",
        "software": ", ".join(_software(said)),
        "backend": said["backend"],
        "precision": ", ".join(said["precisions"]) or "-",
        "threads": f"{said['threads_per_rank']} a rank",
        "quiet": f"{quiet}{moved} while calibrating; load {load:.2f} before",
        "steps": f"n in the table, after {said['warmup_steps']} that are not timed",
    }
    if said["seconds"] is not None:
        facts["suite"] = f"{said['seconds']:.0f} s in all"
    yield from (f"- {name}: {value}" for name, value in facts.items())


def _software(said: Mapping[str, Any]) -> Iterator[str]:
    yield f"torch {said['torch']}"
    if said["cuda"]:
        yield f"CUDA {said['cuda']}"
    if said["nccl"]:
        yield f"NCCL {said['nccl']}"
    yield f"Python {said['python']}"


def _accuracy(said: Mapping[str, Any], counted: Sequence[Result]) -> Iterator[str]:
    if not counted:
        yield "No case has run."
        return
    yield "| error of | n | median | largest | bias |"
    yield "|---|--:|--:|--:|--:|"
    for name in amounts():
        if one := said[name]:
            cells = (percent(one["median_abs"]), percent(one["max_abs"]),
                     percent(one["bias"], signed=True))  # fmt: skip
            yield f"| {_words(name)} | {one['n']} | {' | '.join(cells)} |"
    yield ""
    ranked = {"all cases": said["spearman"], **said["spearman_by_model"]}
    known = [f"{name} {value:.2f}" for name, value in ranked.items() if value is not None]
    if known:
        yield f"Ranking of step times (Spearman): {', '.join(known)}."


def _words(name: str) -> str:
    return {"step_time_of_min": "step time, against the fastest step"}.get(
        name, name.replace("_", " ")
    )


def _cases(results: Sequence[Result]) -> Iterator[str]:
    if not results:
        return
    yield ("| case | plan | predicted | median | MAD | least | n | error "
           "| peak predicted | measured | error | MFU | loss |")  # fmt: skip
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for one in results:
        noisy = one.mad > NOISY * one.step_time.measured
        cells = (
            one.name,
            f"{one.plan} {one.precision}",
            format_seconds(one.step_time.predicted),
            format_seconds(one.step_time.measured),
            f"{percent(one.mad / one.step_time.measured)}{' (noisy)' if noisy else ''}",
            format_seconds(one.least),
            str(one.steps),
            percent(one.step_time.error, signed=True),
            _bytes(one.peak.predicted),
            _bytes(one.peak.measured),
            percent(one.peak.error, signed=True),
            percent(one.mfu),
            f"{one.loss[0]:.3f} -> {one.loss[1]:.3f}",
        )
        yield f"| {' | '.join(cells)} |"


def _bytes(amount: float) -> str:
    """With digits enough that 3 % show."""
    return f"{amount / 2**30:.2f} GiB" if amount >= 2**30 else f"{amount / 2**20:.1f} MiB"


def _parts(results: Sequence[Result]) -> Iterator[str]:
    """Predicted / measured and error of each part: of forward and backward the mean action."""
    shown = [name for name in KINDS if any(name in one.kinds for one in results)]
    if not shown:
        return
    yield "Predicted / measured, error, of one recorded step. Forward, backward and optimizer are"
    yield "mean lengths of one action; the others are seconds of a step, mean over ranks."
    yield ""
    yield f"| case | {' | '.join(name.replace('_', ' ') for name in shown)} |"
    yield f"|---|{'--:|' * len(shown)}"
    for one in results:
        yield f"| {one.name} | {' | '.join(_part(one.kinds.get(name)) for name in shown)} |"


def _part(pair: Pair | None) -> str:
    if pair is None or not (pair.predicted or pair.measured):
        return "-"
    both = f"{format_seconds(pair.predicted)} / {format_seconds(pair.measured)}"
    return both if pair.error is None else f"{both}, {percent(pair.error, signed=True)}"


def _shared(results: Sequence[Result]) -> Iterator[str]:
    shared = [one for one in results if not one.counted]
    if not shared:
        return
    yield "Their correctness is real, their speed is not that of as many devices: they are in no"
    yield "figure of accuracy."
    yield ""
    yield "| case | plan | how | median | peak predicted | measured | loss |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for one in shared:
        cells = (one.name, one.plan, one.label, format_seconds(one.step_time.measured),
                 _bytes(one.peak.predicted), _bytes(one.peak.measured),
                 f"{one.loss[0]:.3f} -> {one.loss[1]:.3f}")  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _left_out(document: Mapping[str, Any]) -> Iterator[str]:
    for status in ("failed", "skipped"):
        for name, reason in document[status].items():
            yield f"- {name} {status}: {reason}"


def _residuals(said: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    yield "How far single kernels and links are off after the fit, without sign:"
    yield ""
    yield "| kind | n | median | p90 | largest |"
    yield "|---|--:|--:|--:|--:|"
    for name, one in (pair for part in said.values() for pair in part.items()):
        cells = " | ".join(percent(one[key]) for key in ("median", "p90", "max"))
        yield f"| {name} | {one['n']:.0f} | {cells} |"


def _pictures(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        said = PICTURES.get(name, "Predicted above measured, one step.")
        yield from (f"![{said}]({name})", "")
