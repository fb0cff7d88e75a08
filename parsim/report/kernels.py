"""Measured kernels beside predicted ones, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text import percent, table
from parsim.units import format_seconds
from parsim.validation.kernels import KernelValidation

EXPLAINED = (
    "measured: this very shape is in the device's published table; corrected: near shapes of it; "
    "model: the constants alone; in 80 %: measured times inside the predicted 80 % interval"
)


def kernels_view(found: KernelValidation, *, rows: bool) -> RenderableType:
    """Signed errors by row (if asked), by table, device and kind, and what was skipped."""
    parts: list[RenderableType] = [_rows_table(found), Text("")] if rows else []
    parts.append(_summary_table(found))
    for (name, reason), count in found.skipped.items():
        parts.append(Text(f"skipped {count} of {name}: {reason}"))
    return Group(*parts, Text(EXPLAINED, style="dim"))


def _summary_table(found: KernelValidation) -> Table:
    made = table("table", "device", "kind", "n", "median", "p90", "max", "bias", "measured",
                 "corrected", "model", "in 80 %", right=range(3, 12),
                 title="time of single kernels, (predicted - measured) / measured")  # fmt: skip
    for one in found.summaries:
        made.add_row(
            one.table,
            one.device,
            one.kind,
            str(one.n),
            percent(one.median_abs_error),
            percent(one.p90_abs_error),
            percent(one.max_abs_error),
            percent(one.bias, signed=True),
            *(str(count) for count in one.sources),
            percent(one.inside_interval),
        )
    return made


def _rows_table(found: KernelValidation) -> Table:
    made = table("row", "device", "kind", "predicted", "80 % interval", "measured", "error",
                 "source", right=(3, 4, 5, 6))  # fmt: skip
    for row in found.rows:
        if row.predicted is None or row.measured is None or row.interval is None:
            made.add_row(row.row_id, "skipped", row.reason)
            continue
        low, high = (format_seconds(one) for one in row.interval)
        made.add_row(
            row.row_id,
            row.device,
            row.kind,
            format_seconds(row.predicted),
            f"{low} to {high}",
            format_seconds(row.measured),
            percent(row.error, signed=True),
            row.source,
        )
    return made
