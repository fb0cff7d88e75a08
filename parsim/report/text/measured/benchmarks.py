"""Measured kernels and collectives beside their predictions, as text for people."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.tables import table
from parsim.units import format_bytes, format_seconds, percent
from parsim.validation.collective.validate import (
    ALL,
    CALIBRATED,
    CLASSES,
    LARGE,
    CollectiveRow,
    CollectiveValidation,
)
from parsim.validation.kernel.validate import KernelValidation

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
    """Errors of collectives by kind of group and by size."""
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
                percent(summary.coverage, digits=0),
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


EXPLAINED = (
    "measured: this very shape is in the device's published table; corrected: near shapes of it; "
    "model: the constants alone; in 80 %: measured times inside the predicted 80 % interval"
)


def kernels_view(validation: KernelValidation, *, rows: bool) -> RenderableType:
    """Signed errors by row (if asked), by table, device and kind, and what was skipped."""
    parts: list[RenderableType] = [_rows_table(validation), Text("")] if rows else []
    parts.append(_summary_table(validation))
    for (name, reason), count in validation.skipped.items():
        parts.append(Text(f"skipped {count} of {name}: {reason}"))
    return Group(*parts, Text(EXPLAINED, style="dim"))


def _summary_table(validation: KernelValidation) -> Table:
    """Errors of kernels by table, device and kind."""
    columns = (
        "table | device | kind | n | median | p90 | max | bias | measured | corrected | model | "
        "in 80 %"
    )
    title = "time of single kernels, (predicted - measured) / measured"
    filled = table(columns, title=title, right=range(3, 12))
    for summary in validation.summaries:
        filled.add_row(
            summary.table,
            summary.device,
            summary.kind,
            str(summary.n),
            percent(summary.median_abs_error),
            percent(summary.p90_abs_error),
            percent(summary.max_abs_error),
            percent(summary.bias, signed=True),
            *(str(count) for count in summary.sources),
            percent(summary.inside_interval),
        )
    return filled


def _rows_table(validation: KernelValidation) -> Table:
    columns = "row | device | kind | predicted | 80 % interval | measured | error | source"
    filled = table(columns, right=(3, 4, 5, 6))
    for row in validation.rows:
        if row.predicted is None or row.measured is None or row.interval is None:
            filled.add_row(row.row_id, "skipped", row.reason)
            continue
        low, high = (format_seconds(end) for end in row.interval)
        filled.add_row(
            row.row_id,
            row.device,
            row.kind,
            format_seconds(row.predicted),
            f"{low} to {high}",
            format_seconds(row.measured),
            percent(row.error, signed=True),
            row.source,
        )
    return filled
