"""What a running plan tells its user: notes of the ranks, and on a terminal a line for each step.

OUT/errors/attempt<A>/<what>.note   restarts, damaged checkpoints     (executor/faults/reports.py)
OUT/steps.jsonl                     a JSON object for each step       (executor/run/step_log.py)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS = "steps.jsonl"


@dataclass(slots=True, kw_only=True)
class News:
    """Reads what is new in a run's folder; each call of `tell` passes it on once.

    `told` are the lines told before. `step` gets the record of each step from now on; None tells no
    steps.
    """

    out: Path
    told: set[str] = field(default_factory=set)
    step: Callable[[Mapping[str, Any]], None] | None = None
    _read: int = field(init=False)

    def __post_init__(self) -> None:
        self._read = self._size()

    def tell(self) -> None:
        """Write new notes to stderr, and hand on new steps."""
        for path in sorted((self.out / "errors").glob("attempt*/*.note")):
            with suppress(OSError):
                line = f"note: {path.read_text('utf-8').strip()}"
                if line not in self.told:
                    self.told.add(line)
                    sys.stderr.write(f"{line}\n")
        if self.step is not None:
            for record in self._steps():
                self.step(record)

    def _steps(self) -> Iterator[Mapping[str, Any]]:
        """The records that were added whole since the last call."""
        with suppress(OSError), (self.out / STEPS).open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                with suppress(ValueError):
                    yield json.loads(line)

    def _size(self) -> int:
        with suppress(OSError):
            return (self.out / STEPS).stat().st_size
        return 0
