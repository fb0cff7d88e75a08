"""Runs parts one after another, each a process with a time limit, and keeps what they said.

The folder's `parts.json` is written before and behind every part, so that work that was cut short
goes on where it was: a part that is done is not run again, one that failed or was cut is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.faults.messages import say
from executor.suite.predict import now
from parsim.errors import InputError
from parsim.files import read_json
from parsim.launch.ranks import PARENT
from parsim.report.writing import write_text

LEAST_SECONDS = 5.0
"""Seconds below which a part is not begun."""

SECONDS_LEFT = "{seconds}"
"""Stands in a part's words for the seconds that it should take, when it begins."""

WORK = 0.9
"""Share of a part's limit in which it should be ready by itself."""

UNPACKED = (".lock", ".distcp", ".pt", ".safetensors")
"""Ends of names that are not packed: the lock, and the weights of checkpoints."""

GRACE = 10.0
"""Seconds that a part gets to end when its time is over, before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourPart:
    """One part: Python's arguments, and the most seconds that it may take.

    Parts before it leave it `least` seconds. `answers` is the question that it answers, `writes`
    what it leaves in the folder.
    """

    name: str
    answers: str
    words: Sequence[str]
    seconds: float
    least: float = 0.0
    writes: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class HourParts:
    """Parts in a folder, with so many `seconds` for those that are not done yet."""

    out: Path
    parts: Sequence[HourPart]
    seconds: float
    done: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        """Find what is done.

        Raises:
            InputError: the folder's record cannot be read.
        """
        path = self.out / "parts.json"
        record = read_json(path) if path.exists() else {}
        if not isinstance(record, dict):
            raise InputError(f"{path}: not a record of parts; choose another folder")
        self.done = record

    def run(self) -> int:
        """Run what is left in its order; 1 if a part failed or there was no time for it, else 0."""
        until = time.monotonic() + self.seconds
        for number, part in enumerate(self.parts):
            if self._is_done(part):
                say(f"{part.name}: done before")
                continue
            left = until - time.monotonic()
            if left < LEAST_SECONDS:
                self._note(part, "left out", f"no time: {max(left, 0.0):.0f} s are left")
                continue
            kept = sum(
                later.least for later in self.parts[number + 1 :] if not self._is_done(later)
            )
            self._run(part, min(part.seconds, left, max(left - kept, part.least)))
        return int(any(entry["status"] != "done" for entry in self.done.values()))

    def _is_done(self, part: HourPart) -> bool:
        return self.done.get(part.name, {}).get("status") == "done"

    def _run(self, part: HourPart, limit: float) -> None:
        say(f"{part.name}: {part.answers} (at most {limit:.0f} s)")
        self._note(part, "cut short", "", began_at=now())
        began = time.monotonic()
        code = self._process(part, limit)
        took = time.monotonic() - began
        status, reason = "done", ""
        if code is None:
            status, reason = "cut short", f"its {limit:.0f} s were over"
        elif code:
            status, reason = "failed", f"exit code {code}; see {part.name}.log"
        self._note(part, status, reason, seconds=took)
        say(f"{part.name}: {status} after {took:.0f} s{f': {reason}' if reason else ''}")

    def _process(self, part: HourPart, limit: float) -> int | None:
        """The exit code of a part; None if it took longer than it may."""
        environment = {**os.environ, **part.variables, PARENT: str(os.getpid())}
        with (self.out / f"{part.name}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, *_words(part, limit)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)

    def _note(self, part: HourPart, status: str, reason: str, **more: object) -> None:
        before = self.done.get(part.name, {})
        entry = {"answers": part.answers, "writes": part.writes, **before, **more}
        self.done[part.name] = {**entry, "status": status, "reason": reason}
        write_text(self.out / "parts.json", json.dumps(self.done, indent=2) + "\n")


def _words(part: HourPart, limit: float) -> list[str]:
    """Arguments of a part that has so many seconds."""
    return [word.replace(SECONDS_LEFT, f"{WORK * limit:.0f}") for word in part.words]


def archived(out: Path) -> Path:
    """Pack a folder into an archive beside it, to be carried off as one file."""
    target = out.with_name(f"{out.name}.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(out.rglob("*")):
            if path.is_file() and not path.name.endswith(UNPACKED):
                archive.write(path, Path(out.name) / path.relative_to(out))
    return target


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part that still runs as Ctrl-C does, then whatever is left of its session."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
