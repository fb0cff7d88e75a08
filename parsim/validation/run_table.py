"""Reads a table of measurements: training runs by their steps, or samples a second of networks."""

from __future__ import annotations

from pathlib import Path

from parsim.errors import TableError
from parsim.validation.step.measured_run import REQUIRED as RUNS
from parsim.validation.tables import read_rows
from parsim.validation.vision.measured_samples import REQUIRED as SAMPLES
from parsim.validation.vision.measured_samples import is_samples


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV of measured runs as text cells.

    Raises:
        TableError: missing file, not text, empty, no rows, or columns missing.
    """
    return read_rows(path, _check_header)


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise TableError(f"{path}: empty file; expected a header with {', '.join(RUNS)}")
    required = SAMPLES if is_samples(header) else RUNS
    missing = [name for name in required if name not in header]
    if missing:
        raise TableError(f"{path}: columns missing: {', '.join(missing)}")
