"""What a failing rank leaves behind: its place in the run, and why it failed.

A rank keeps its place in `OUT/errors/attempt<A>/rank<N>.step` and, when it fails, says why in
`rank<N>.json` beside it before it dies. The attempt counts how often torchrun has started all
ranks again. `executor.faults.diagnosis` reads these files. Needs no torch.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

from executor.faults.messages import say
from parsim.errors import InputError
from parsim.launch.watch import attempt

LINGER = 1.0
"""Seconds that a victim waits before it dies: torchrun then ends all ranks, told or not."""

_WIDTH = 32  # bytes of a place: always as many, so that it is overwritten in one go

_KINDS = {
    "out of memory": r"out of memory|OutOfMemory|can't allocate memory|Cannot allocate memory"
    r"|bad_alloc|^MemoryError",
    "connection": r"Connection (closed|reset|refused)|Broken pipe|remote process exited"
    r"|Socket closed|socketPoll|remote error",
    "timeout": r"Timed out|timed out|[Tt]imeout",
}
"""Kinds of failure by what torch, gloo and NCCL say; the first that matches."""

_VICTIMS = ("connection", "timeout", "peer")
"""Kinds that another rank's failure causes."""


class PeerError(Exception):
    """Another rank has failed and says why itself; this one cannot go on without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one rank said when it failed; `step` counts from 0, warm-up included, -1 is before."""

    rank: int
    step: int
    action: str
    kind: str
    message: str
    time: float

    @property
    def victim(self) -> bool:
        """Whether another rank's failure explains this one."""
        return self.kind in _VICTIMS


@dataclass(slots=True)
class Place:
    """Where this rank is, also in a file for when it is killed; one a process, see `HERE`."""

    step: int = -1
    action: str = "start"
    _file: int = field(default=-1, repr=False)

    def keep(self, out: Path, rank: int) -> None:
        """Write the place into a file from now on; without one if the disk refuses it.

        What an earlier run left about this rank is forgotten.
        """
        folder = attempt_folder(out, attempt())
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"rank{rank}.json").unlink(missing_ok=True)
            path = folder / f"rank{rank}.step"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.enter(self.action)

    def enter(self, action: str, step: int | None = None) -> None:
        """Note what begins now: microseconds, and only between steps."""
        self.action = action
        self.step = self.step if step is None else step
        if self._file >= 0:
            with suppress(OSError):
                os.pwrite(self._file, f"{self.step} {action}".ljust(_WIDTH).encode(), 0)


HERE = Place()
"""This process's place."""


def attempt_folder(out: Path, number: int) -> Path:
    """Where the ranks of one attempt leave their places and reports."""
    return out / "errors" / f"attempt{number}"


def tell(out: Path, what: str, text: str) -> None:
    """Leave a note about something, which the launcher passes on to the user once."""
    say(text)
    name = f"{what}-{zlib.crc32(text.encode()):08x}.note"
    write_whole(attempt_folder(out, attempt()) / name, text)


@contextmanager
def fatal(out: Path, rank: int) -> Iterator[None]:
    """Report whatever fails in the block and end this process at once, with its exit code.

    Leaving the process group in order is not tried: it may wait for ranks that are gone.
    """
    try:
        yield
    except Exception as error:
        report = describe(error, rank)
        write_report(out, report)
        traceback.print_exc()
        if report.victim:
            time.sleep(LINGER)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2 if report.kind == "input" else 1)


def describe(error: BaseException, rank: int) -> Report:
    """The report of an exception that happens now, by what it was raised from.

    Torch's pipeline raises "[Stage 1] failed to run forward" from whatever happened there.
    """
    action = _action(error) or HERE.action
    while not isinstance(error, InputError) and error.__cause__ is not None:
        error = error.__cause__
    name = type(error).__name__
    text = " ".join((str(error).strip().splitlines() or [""])[0].split())[:500]
    if isinstance(error, InputError | PeerError):
        kind, message = "input" if isinstance(error, InputError) else "peer", text
    else:
        message = f"{name}: {text}" if text else name
        kind = next((k for k, words in _KINDS.items() if re.search(words, message)), "error")
    return Report(
        rank=rank, step=HERE.step, action=action, kind=kind, message=message, time=time.time()
    )


def _action(error: BaseException) -> str | None:
    """The action that torch's runtime was at, from its frame: known without any bookkeeping."""
    runtime = sys.modules.get("executor.torch_internals.pipelining")
    torch_action = getattr(runtime, "TorchAction", None)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        action = frame.f_locals.get("action")
        if torch_action is not None and isinstance(action, torch_action):
            return str(action)
    return None


def write_report(out: Path, report: Report) -> None:
    """Leave a report for `executor.faults.diagnosis`."""
    path = attempt_folder(out, attempt()) / f"rank{report.rank}.json"
    write_whole(path, json.dumps(asdict(report)))


def write_whole(path: Path, line: str) -> None:
    """Write a file of one line whole or not at all; a disk that refuses it leaves it to the log."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(f"{line}\n", encoding="utf-8")
        part.replace(path)


@contextmanager
def writing(path: Path, option: str = "--out") -> Iterator[Path]:
    """Turn what the disk says while `path` is written into an error of the user's input.

    The option is the one that chooses the folder.

    Raises:
        InputError: the path cannot be written, or the disk is full.
    """
    try:
        yield path
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; "
            f"choose another folder with {option}, or free space there"
        ) from error


def finish(code: int) -> NoReturn:
    """End this process: a rank at once, any other by way of the interpreter.

    torch's threads abort some ranks that end by way of the interpreter, when all work is done
    (torch 2.13, "terminate called"): every third or so after a checkpoint was loaded, few others.
    """
    if "RANK" not in os.environ:
        raise SystemExit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
