"""Measured collectives against their predictions: text for the terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.tables import percent, table
from parsim.units import format_bytes, format_seconds
from parsim.validation.collective.validate import (
    ALL,
    CALIBRATED,
    CLASSES,
    LARGE,
    CollectiveRow,
    CollectiveValidation,
)

TITLES = {
    CALIBRATED: "calibrated: groups that the catalog has a measured curve of",
    "uncalibrated": "uncalibrated: topology and constants alone",
}


def collectives_view(validation: CollectiveValidation, *, rows: bool) -> RenderableType:
    """Per-row signed errors (if asked), errors by place and size, and why rows were skipped."""
    parts: list[RenderableType] = []
    if rows:
        parts += [_rows(validation), Text("")]
    for mode in validation.modes:
        if validation.summary(mode, ALL, ALL).errors.n:
            parts += [_summary(validation, mode), Text("")]
    reasons = Counter(row.reason for row in validation.rows if row.reason)
    flags = Counter(row.flag for row in validation.rows if row.flag)
    parts += [Text(f"skipped: {count} x {reason}") for reason, count in reasons.items()]
    parts += [Text(f"flagged, and counted: {count} x {reason}") for reason, count in flags.items()]
    return Group(*parts)


def _summary(validation: CollectiveValidation, mode: str) -> Table:
    columns = "group | bytes | n | median | p90 | max | bias | in 80 % interval"
    title = f"{TITLES[mode]}; (predicted - measured) / measured"
    filled = table(columns, title=title, right=range(2, 8))
    for group in validation.scopes:
        shown = group
        for size in (*CLASSES, LARGE, ALL):
            summary = validation.summary(mode, group, size)
            if not summary.errors.n:
                continue
            filled.add_row(
                shown,
                size,
                str(summary.errors.n),
                percent(summary.errors.median_abs_error),
                percent(summary.errors.p90_abs_error),
                percent(summary.errors.max_abs_error),
                percent(summary.errors.bias, signed=True),
                f"{100 * (summary.coverage or 0.0):.0f} %",
            )
            shown = ""
    return filled


def _rows(validation: CollectiveValidation) -> Table:
    columns = "row | system | collective | group | bytes | measured"
    columns += "".join(f" | {mode} | error" for mode in validation.modes)
    filled = table(columns, right=range(4, 6 + 2 * len(validation.modes)))
    for row in validation.rows:
        filled.add_row(*_cells(validation, row))
    return filled


def _cells(validation: CollectiveValidation, row: CollectiveRow) -> list[str]:
    if row.reason:
        return [row.row_id, "skipped", row.reason]
    cells = [row.row_id, row.system, row.kind, row.group, format_bytes(row.size)]
    cells.append(format_seconds(row.measured))
    for mode in validation.modes:
        prediction = row.predicted(mode)
        cells.append(format_seconds(prediction.seconds) if prediction else "-")
        cells.append(percent(row.error(mode), signed=True))
    return cells
