"""What the first hour imports, tried before any part of it begins.

A machine that was lent for minutes should not say of each part in turn that a package is missing.
Imports nothing but Python's library, so that it can say so.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence

ALWAYS = (
    "matplotlib",
    "numpy",
    "pydantic",
    "pydoc_data.topics",  # the text that is trained on; some builds of Python leave it out
    "quantiphy",
    "rich",
    "ruamel.yaml",
    "simpy",
    "torch",
    "typer",
)
"""Modules of every part."""

FOR_TESTS = ("hypothesis", "pytest")
"""Modules of the parts `tests` and `faults`."""


def missing(names: Sequence[str]) -> list[str]:
    """Modules that cannot be imported, each with the reason; tried in a process of its own."""
    words = [sys.executable, "-m", "executor.first_hour.needs", *names]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:  # an import ended the process
        return [f"exit code {done.returncode}: {done.stderr.strip()[-500:]}"]
    return done.stdout.splitlines()


def main() -> int:
    """Print a line for each module of the arguments that cannot be imported."""
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except Exception as error:  # of a wheel for another machine: OSError, and more
            told = " ".join(str(error).split())
            sys.stdout.write(f"{name} ({type(error).__name__}: {told})\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
