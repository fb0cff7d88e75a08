"""Reads a CSV of measurements as text cells; what a table must hold is each schema's own."""

from __future__ import annotations

import csv
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from parsim.errors import TableError

Check = Callable[[Path, list[str]], None]
"""Raises TableError where the header (empty for an empty file) lacks what a schema needs."""


def read_rows(path: Path, check: Check, *, strict: bool = False) -> list[dict[str, str]]:
    """The rows below the header, column to cell without the spaces around it; "" where it is short.

    Args:
        path: the file.
        check: of its header.
        strict: refuse quotes that do not close.

    Raises:
        TableError: missing file, not text, not CSV, a wrong header, or no rows.
    """
    header, *rows = _lines(path, strict) or [[]]
    check(path, header)
    if not rows:
        raise TableError(f"{path}: no rows below the header")
    blank = dict.fromkeys(header, "")
    return [blank | dict(zip(header, row, strict=False)) for row in rows]


def _lines(path: Path, strict: bool) -> list[list[str]]:
    """The lines that are not blank, the header first."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as reason:
        said = reason.strerror if isinstance(reason, OSError) else "not UTF-8 text"
        raise TableError(f"{path}: cannot read: {said}") from None
    if not text.strip():
        return []
    reader = csv.reader(StringIO(text, newline=""), strict=strict)
    try:
        return [[cell.strip() for cell in cells] for cells in reader if cells]
    except csv.Error as reason:
        raise TableError(f"{path}:{reader.line_num}: not CSV: {reason}") from None
