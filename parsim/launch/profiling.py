"""Asks the executor for the graph of a module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parsim.launch.ranks import ask, require_torch
from parsim.report.writing import check_writable, write_text


def profile(target: str, sizes: str, out: Path, *, hooks: bool = False) -> dict[str, Any]:
    """Write the model file of `FILE.py:FUNCTION` and return what there is to say of it.

    Raises:
        InputError: torch is missing, there is no such function, or the file cannot be written.
    """
    require_torch("profiling a module")
    check_writable(out)
    words = [target, f"--input={sizes}", *(["--hooks"] if hooks else [])]
    document: dict[str, Any] = json.loads(ask("executor.profiling", words).stdout)
    write_text(out, document.pop("text"))
    return {**document, "file": str(out)}
