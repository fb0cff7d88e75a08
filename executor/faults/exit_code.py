"""How a program of the executor ends: its exit code, and one line on stderr for a wrong input."""

from __future__ import annotations

import sys
from collections.abc import Callable

from parsim.errors import ParsimError


def exit_code(work: Callable[[], int | None]) -> int:
    """Do a program's work and return its exit code: 0 unless the work or an error says another."""
    try:
        return work() or 0
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
