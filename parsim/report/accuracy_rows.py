"""The CSV beside the accuracy report: every row of every table, predicted or skipped."""

from __future__ import annotations

import csv
from io import StringIO

from parsim.validation.compare import Validation
from parsim.validation.comparison import Comparison
from parsim.validation.fitting.rows import is_fitted

COLUMNS = (
    "table", "row_id", "status", "model", "system", "stack", "device", "precision", "plan",
    "predicted_step_time_s", "measured_step_time_s", "error", "predicted_peak_allocated_bytes",
    "measured_peak_memory_bytes", "memory_error", "used", "notes",
)  # fmt: skip
"""`used`: fit where the constants were fitted to the row, else test; blank where skipped."""


def accuracy_rows(found: Validation) -> str:
    """All rows as CSV text."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_cells(row) for row in found.rows)
    return text.getvalue()


def _cells(row: Comparison) -> list[str]:
    if row.skipped:
        known = [row.table, row.row_id, "skipped", "", "", row.stack, row.device, row.precision]
        return [*known, *[""] * (len(COLUMNS) - len(known) - 1), row.reason]
    numbers = (row.predicted_step, row.measured_step, row.error, row.predicted_peak,
               row.measured_peak, row.memory_error)  # fmt: skip
    words = (row.table, row.row_id, "ok", row.model, row.system, row.stack, row.device,
             row.precision, row.plan)  # fmt: skip
    used = "fit" if is_fitted(row) else "test"
    return [*words, *(_number(one) for one in numbers), used, "; ".join(row.notes)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
