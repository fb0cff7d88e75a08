"""The files of the accuracy report: Markdown, every row as CSV, and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parsim.errors import InputError
from parsim.report.accuracy.accuracy import accuracy_report
from parsim.report.picture.scatter import draw_scatter
from parsim.report.writing import check_writable, csv_text, write_text
from parsim.validation.coverage import LeftOut
from parsim.validation.fitted_rows import is_fitted
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow

COLUMNS = (
    "table",
    "row_id",
    "status",
    "model",
    "system",
    "stack",
    "device",
    "precision",
    "plan",
    "predicted_step_time_s",
    "measured_step_time_s",
    "error",
    "predicted_peak_allocated_bytes",
    "measured_peak_memory_bytes",
    "memory_error",
    "used",
    "notes",
)
"""`used`: fit where the constants were fitted to the row, else test; blank where skipped."""

BESIDE = (".csv", ".png")
"""Suffixes of the files beside the report."""


def check_report(path: Path, tables: Sequence[Path]) -> None:
    """Fail before the work where a file cannot be written, or would replace a table.

    Raises:
        InputError: which file, and why.
    """
    if path.suffix in BESIDE:
        raise InputError(
            f"{path}: a report is Markdown, and its rows and picture go beside it; "
            f"name it {path.with_suffix('.md')}"
        )
    for suffix in (path.suffix, *BESIDE):
        other = path.with_suffix(suffix)
        if any(other.resolve() == table.resolve() for table in tables):
            raise InputError(
                f"{path}: its rows would replace the table {other}; "
                "choose another name for the report"
            )
    for file in (path, *(path.with_suffix(suffix) for suffix in BESIDE)):
        check_writable(file)


def write_accuracy(
    validation: Validation, path: Path, *, command: str, left_out: LeftOut | None = None
) -> None:
    """Write the report to `path`, its CSV and PNG beside it under the same name.

    Raises:
        InputError: a file cannot be written.
    """
    text = accuracy_report(validation, command=command, beside=path.stem, left_out=left_out)
    write_text(path, text)
    write_text(path.with_suffix(".csv"), accuracy_rows(validation))
    draw_scatter(validation, path.with_suffix(".png"))


def accuracy_rows(validation: Validation) -> str:
    """All rows as CSV text."""
    return csv_text([COLUMNS, *map(_cells, validation.rows)])


def _cells(row: ValidatedRow) -> list[str]:
    if row.skipped:
        known = [row.table, row.row_id, "skipped", "", "", row.stack, row.device, row.precision]
        return [*known, *[""] * (len(COLUMNS) - len(known) - 1), row.reason]
    seconds = (row.predicted_step, row.measured_step, row.error)
    bytes_ = (row.predicted_peak, row.measured_peak, row.memory_error)
    numbers = [_number(number) for number in (*seconds, *bytes_)]
    setting = (row.model, row.system, row.stack, row.device, row.precision, row.plan)
    used = "fit" if is_fitted(row) else "test"
    return [row.table, row.row_id, "ok", *setting, *numbers, used, "; ".join(row.notes)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
