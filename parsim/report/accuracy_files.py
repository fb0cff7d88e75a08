"""The files of the accuracy report: Markdown, every row as CSV, and the picture."""

from __future__ import annotations

from pathlib import Path

from parsim.report.accuracy import accuracy_report
from parsim.report.accuracy_rows import accuracy_rows
from parsim.report.save import write_text
from parsim.report.scatter import draw_scatter
from parsim.validation.compare import Validation


def write_accuracy(found: Validation, path: Path, *, command: str) -> list[Path]:
    """Write the report to `path`, its CSV and PNG beside it under the same name.

    Raises:
        InputError: a file cannot be written.
    """
    rows, picture = path.with_suffix(".csv"), path.with_suffix(".png")
    write_text(path, accuracy_report(found, command=command, beside=path.stem))
    write_text(rows, accuracy_rows(found))
    draw_scatter(found, picture)
    return [path, rows, picture]
