"""Measured kernels beside predicted ones, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.tables import percent, table
from parsim.units import format_seconds
from parsim.validation.kernel.validate import KernelValidation

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
