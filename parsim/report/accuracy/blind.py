"""The table of blind tables: today's errors beside those of the code that came first.

A blind table takes part in no fit and in no interval, so its errors say what somebody's own runs
may meet. `first_predicted.yaml` beside the tables keeps which commit predicted each before anybody
had compared it, and how far off that was; today's figures are computed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from parsim.report.accuracy.fits import ran_out_line
from parsim.report.markdown import markdown_table
from parsim.sim.confidence.known_errors import ANY
from parsim.units import percent
from parsim.validation.coverage import summarise
from parsim.validation.evidence import Evidence, unseen_key
from parsim.validation.validate import Validation

FIGURES = ("mean_abs_error", "median_abs_error", "p90_abs_error", "max_abs_error")


def first_predicted() -> Mapping[str, Mapping[str, Any]]:
    """Table -> the commit that first predicted it, and the summary of its errors then."""
    from ruamel.yaml import YAML

    file = files("parsim.validation") / "data" / "blind" / "first_predicted.yaml"
    entries: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(file.read_text("utf-8"))
    return entries


def blind_lines(validation: Validation) -> Iterator[str]:
    """A Markdown table: for each blind table a line of the first code and one of today's."""
    yield from markdown_table(
        "blind table | code | n | mean | median | p90 | max | bias | inside 80 %",
        _first_and_now(validation),
        words=(0, 1),
    )


def _first_and_now(validation: Validation) -> Iterator[list[str]]:
    for table in validation.tables:
        first = first_predicted()[table]
        yield _cells(table, f"commit {first['commit']}, the first to predict it", first)
        now = {**validation.summary(table).to_json(), "covered": validation.coverage(table).covered}
        yield _cells(table, "today", now)


def unseen_text(validation: Validation) -> str:
    """What `data/blind/evidence.json` holds: errors of all blind rows by software."""
    errors: dict[str, list[float]] = {}
    for row in validation.rows:
        if row.error is not None:
            key = unseen_key(row.practice or row.software, adapters="adapters" in row.kinds)
            errors.setdefault(key, []).append(row.error)
    entries = [_figures(software, each).to_json() for software, each in sorted(errors.items())]
    return json.dumps({"schema_version": 1, "evidence": entries}, indent=1) + "\n"


def _figures(software: str, errors: list[float]) -> Evidence:
    summary = summarise(errors, 0)
    shares = {name: getattr(summary, name) or 0.0 for name in ("mean_abs_error", "bias")}
    largest = summary.max_abs_error or 0.0
    rounded = {name: round(share, 4) for name, share in shares.items()}
    return Evidence(
        device=ANY, software=software, n=summary.n, max_abs_error=round(largest, 4), **rounded
    )


def memory_lines(validation: Validation) -> Iterator[str]:
    """Sentences: errors of the blind peaks, and what is predicted of runs that did not fit."""
    for table in validation.tables:
        summary = validation.memory_summary(table)
        if summary.n:
            yield (
                f"Peak memory of {table}: median error {percent(summary.median_abs_error)} over "
                f"{summary.n} rows, bias {percent(summary.bias, signed=True)}."
            )
    line = ran_out_line(validation)
    if line:
        yield line


def _cells(table: str, code: str, figures: Mapping[str, Any]) -> list[str]:
    errors = [percent(figures[name]) for name in FIGURES]
    shares = [percent(figures["bias"], signed=True), percent(figures["covered"])]
    return [table, code, str(figures["n"]), *errors, *shares]
