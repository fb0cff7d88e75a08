"""Measured collectives against their predictions: text for the terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text import percent, table
from parsim.units import format_bytes, format_seconds
from parsim.validation.collectives import (
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


def collectives_view(found: CollectiveValidation, *, rows: bool) -> RenderableType:
    """Per-row signed errors (if asked), errors by place and size, and why rows were skipped."""
    parts: list[RenderableType] = []
    if rows:
        parts += [_rows(found), Text("")]
    for mode in found.modes:
        if found.summary(mode, ALL, ALL).errors.n:
            parts += [_summary(found, mode), Text("")]
    reasons = Counter(row.reason for row in found.rows if row.reason)
    flags = Counter(row.flag for row in found.rows if row.flag)
    parts += [Text(f"skipped: {count} x {said}") for said, count in reasons.items()]
    parts += [Text(f"flagged, and counted: {count} x {said}") for said, count in flags.items()]
    return Group(*parts)


def _summary(found: CollectiveValidation, mode: str) -> Table:
    made = table("group", "bytes", "n", "median", "p90", "max", "bias", "in 80 % interval",
                 title=f"{TITLES[mode]}; (predicted - measured) / measured",
                 right=range(2, 8))  # fmt: skip
    for place in found.places:
        shown = place
        for size in (*CLASSES, LARGE, ALL):
            one = found.summary(mode, place, size)
            if not one.errors.n:
                continue
            made.add_row(
                shown,
                size,
                str(one.errors.n),
                percent(one.errors.median_abs_error),
                percent(one.errors.p90_abs_error),
                percent(one.errors.max_abs_error),
                percent(one.errors.bias, signed=True),
                f"{100 * (one.coverage or 0.0):.0f} %",
            )
            shown = ""
    return made


def _rows(found: CollectiveValidation) -> Table:
    made = table("row", "system", "collective", "group", "bytes", "measured",
                 *(part for mode in found.modes for part in (mode, "error")),
                 right=range(4, 6 + 2 * len(found.modes)))  # fmt: skip
    for row in found.rows:
        made.add_row(*_cells(found, row))
    return made


def _cells(found: CollectiveValidation, row: CollectiveRow) -> list[str]:
    if row.reason:
        return [row.row_id, "skipped", row.reason]
    cells = [row.row_id, row.system, row.kind, row.group, format_bytes(row.size)]
    cells.append(format_seconds(row.measured))
    for mode in found.modes:
        one = row.predicted(mode)
        cells.append(format_seconds(one.seconds) if one else "-")
        cells.append(percent(row.error(mode), signed=True))
    return cells
