"""The files of the accuracy report: Markdown, every row as CSV, and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parsim.errors import InputError
from parsim.report.accuracy import LeftOut, accuracy_report
from parsim.report.accuracy_rows import accuracy_rows
from parsim.report.save import check_writable, write_text
from parsim.report.scatter import draw_scatter
from parsim.validation.compare import Validation

BESIDE = (".csv", ".png")
"""Suffixes of the files beside the report."""


def check_report(path: Path, tables: Sequence[Path]) -> None:
    """Fail before the work where a file cannot be written, or would replace a table.

    Raises:
        InputError: which file, and why.
    """
    if path.suffix in BESIDE:
        raise InputError(f"{path}: a report is Markdown, and its rows and picture go beside it; "
                         f"name it {path.with_suffix('.md')}")  # fmt: skip
    for suffix in BESIDE:
        other = path.with_suffix(suffix)
        if any(other.resolve() == table.resolve() for table in tables):
            raise InputError(f"{path}: its rows would replace the table {other}; "
                             "choose another name for the report")  # fmt: skip
    for one in (path, *(path.with_suffix(suffix) for suffix in BESIDE)):
        check_writable(one)


def write_accuracy(
    found: Validation, path: Path, *, command: str, left_out: LeftOut | None = None
) -> None:
    """Write the report to `path`, its CSV and PNG beside it under the same name.

    Raises:
        InputError: a file cannot be written.
    """
    text = accuracy_report(found, command=command, beside=path.stem, left_out=left_out)
    write_text(path, text)
    write_text(path.with_suffix(".csv"), accuracy_rows(found))
    draw_scatter(found, path.with_suffix(".png"))
