"""Starts `python -m executor`."""

from __future__ import annotations

from executor.faults.reports import finish
from executor.run.command import main

if __name__ == "__main__":
    finish(main())
