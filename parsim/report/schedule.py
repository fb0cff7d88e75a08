"""A plan's schedule as a file, to start one's own from."""

from __future__ import annotations

from pathlib import Path

from parsim.errors import InputError
from parsim.plan import Plan
from parsim.report.writing import check_other, write_text
from parsim.schedule import schedule_of


def save_schedule(plan: Plan, path: Path, scenario: Path) -> None:
    """Write the actions of a plan's schedule as CSV, one line per pipeline rank.

    Raises:
        InputError: another suffix than .csv, the scenario's own file, or a path that cannot be
            written.
    """
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: unknown form {path.suffix!r} of a schedule; allowed: .csv")
    check_other(path, scenario)
    write_text(path, schedule_of(plan).to_csv().replace("\r\n", "\n"))
