"""What a failing rank leaves behind, and which of the ranks failed first.

A rank keeps its place in `OUT/errors/rank<N>.step` and, when it fails, says why in
`OUT/errors/rank<N>.json` before it dies. `python -m executor.faults OUT` reads these, with
torchrun's exit codes in `OUT/log.txt`, and names the rank that began it:

    rank 1 killed -> rank 0 "Connection closed by peer" -> torchrun ends rank 0
    rank 1 hangs  -> rank 0 "Timed out waiting 8000ms"  -> parsim ends torchrun, so rank 1

Ranks whose connection broke or timed out are victims; whoever is silent beside them is not.
Needs no torch.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import time
import traceback
from argparse import ArgumentParser
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from parsim.errors import InputError

LINGER = 1.0
"""Seconds that a victim waits before it dies: torchrun then ends all ranks, told or not."""

_PR_SET_PDEATHSIG = 1  # Linux, prctl(2): a signal for this process when its parent dies
_WIDTH = 32  # bytes of a place: always as many, so that it is overwritten in one go

_KINDS = {
    "out of memory": r"out of memory|OutOfMemory|can't allocate memory|^MemoryError",
    "connection": r"Connection (closed|reset|refused)|Broken pipe|remote process exited"
    r"|Socket closed|socketPoll|remote error",
    "timeout": r"Timed out|timed out|[Tt]imeout",
}
"""Kinds of failure by what torch, gloo and NCCL say; the first that matches."""

_VICTIMS = ("connection", "timeout")
"""Kinds that another rank's failure causes."""

_ENDED_BY_TORCHRUN = -signal.SIGTERM
_ABORTED = -signal.SIGABRT  # NCCL's watchdog ends a rank so when another rank is gone


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

    def keep(self, folder: Path, rank: int) -> None:
        """Write the place into a file from now on; without one if the disk refuses it."""
        with suppress(OSError):
            (folder / "errors").mkdir(parents=True, exist_ok=True)
            path = folder / "errors" / f"rank{rank}.step"
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


@contextmanager
def fatal(folder: Path, rank: int) -> Iterator[None]:
    """Report whatever fails in the block and end this process at once, with its exit code.

    Leaving the process group in order is not tried: it may wait for ranks that are gone.
    """
    try:
        yield
    except Exception as error:
        found = describe(error, rank)
        write_report(folder, found)
        traceback.print_exc()
        if found.victim:
            time.sleep(LINGER)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2 if found.kind == "input" else 1)


def describe(error: BaseException, rank: int) -> Report:
    """The report of an exception that happens now."""
    name = type(error).__name__
    text = " ".join((str(error).strip().splitlines() or [""])[0].split())[:500]
    if isinstance(error, InputError):
        kind, message = "input", text
    else:
        message = f"{name}: {text}" if text else name
        kind = next((k for k, words in _KINDS.items() if re.search(words, message)), "error")
    action = _action(error) or HERE.action
    return Report(
        rank=rank, step=HERE.step, action=action, kind=kind, message=message, time=time.time()
    )


def _action(error: BaseException) -> str | None:
    """The action that torch's runtime was at, from its frame: known without any bookkeeping."""
    compat = sys.modules.get("executor.compat")
    torch_action = getattr(compat, "TorchAction", None)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        action = frame.f_locals.get("action")
        if torch_action is not None and isinstance(action, torch_action):
            return str(action)
    return None


def write_report(folder: Path, found: Report) -> None:
    """Write a report whole or not at all; a disk that refuses it leaves it to the log."""
    path = folder / "errors" / f"rank{found.rank}.json"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(found)) + "\n", encoding="utf-8")
        part.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Turn what the disk says while `path` is written into an error of the user's input.

    Raises:
        InputError: the path cannot be written, or the disk is full.
    """
    try:
        yield path
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; "
            f"choose another folder with --out, or free space there"
        ) from error


def end_with_parent() -> None:
    """Let the system kill this rank when torchrun dies, even if it is stopped or hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What failed ranks left: reports, last places by rank, exit codes by rank as torchrun saw.

    `root` is the rank that torchrun saw failing first.
    """

    ranks: int
    timeout: float
    reports: Sequence[Report] = ()
    places: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    exits: Mapping[int, int] = field(default_factory=dict)
    root: int | None = None

    @classmethod
    def read(cls, folder: Path, ranks: int, timeout: float) -> Evidence:
        """Read the folder of a run."""
        errors, log = folder / "errors", ""
        with suppress(OSError):
            log = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        # "rank : 1 (local_rank: 1)" and "exitcode : -9 (pid: 7)"; the root cause is listed last
        told = re.findall(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)", log)
        exits = {int(rank): int(code) for rank, code in told}
        reports = [Report(**json.loads(p.read_text())) for p in errors.glob("rank*.json")]
        return cls(
            ranks=ranks,
            timeout=timeout,
            reports=sorted(reports, key=lambda report: report.time),
            places={rank: _place(errors / f"rank{rank}.step") for rank in range(ranks)},
            exits=exits,
            root=int(told[-1][0]) if told else None,
        )


def _place(path: Path) -> tuple[int, str]:
    try:
        step, action = path.read_text().split(maxsplit=1)
        return int(step), action.strip()
    except (OSError, ValueError):
        return -1, "start"


def explain(evidence: Evidence) -> tuple[str, int]:
    """One line that names the first failing rank, its step and its action; and the exit code."""
    code = evidence.exits.get(evidence.root, 0) if evidence.root is not None else 0
    silent = set(range(evidence.ranks)) - {report.rank for report in evidence.reports}
    if evidence.root in silent and code < 0 and code not in (_ENDED_BY_TORCHRUN, _ABORTED):
        return _killed(evidence, evidence.root, code), 1
    for report in evidence.reports:
        if not report.victim:
            return _told(report), 2 if report.kind == "input" else 1
    if evidence.reports and silent:
        return _hung(evidence, silent), 1
    if evidence.reports:
        return _told(evidence.reports[0]), 1
    if evidence.root is not None and code < 0:
        return _killed(evidence, evidence.root, code), 1
    if evidence.root is not None:
        return f"rank {evidence.root} ended with exit code {code}{_at(evidence, evidence.root)}", 1
    return "the ranks ended, and none said why", 1


def _told(report: Report) -> str:
    return f"rank {report.rank} failed{_where(report.step, report.action)}: {report.message}"


def _killed(evidence: Evidence, rank: int | None, code: int) -> str:
    name = signal.Signals(-code).name
    hint = " (short of memory, the system does that)" if code == -signal.SIGKILL else ""
    return f"rank {rank} was killed by {name}{_at(evidence, rank)}{hint}"


def _hung(evidence: Evidence, silent: Collection[int]) -> str:
    """Of the silent ranks, those that are the furthest behind."""
    behind = min(evidence.places.get(rank, (-1, ""))[0] for rank in silent)
    late = [r for r in sorted(silent) if evidence.places.get(r, (-1, ""))[0] == behind]
    names = ", ".join(map(str, late))
    who = f"rank {names}" if len(late) == 1 else f"one of the ranks {names}"
    if all(report.kind == "connection" for report in evidence.reports):
        return f"{who} ended without a word{_at(evidence, late[0])}"
    return f"{who} gave no answer for --timeout={evidence.timeout:g} s{_at(evidence, late[0])}"


def _at(evidence: Evidence, rank: int | None) -> str:
    return _where(*evidence.places.get(-1 if rank is None else rank, (-1, "start")))


def _where(step: int, action: str) -> str:
    when = f"at step {step}" if step >= 0 else "before the first step"
    return f" {when}, action {action}"


def main() -> int:
    """Print `{message, exit_code}` for a run whose ranks failed, and add it to the log."""
    parser = ArgumentParser(prog="python -m executor.faults", description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=0.0)
    options = parser.parse_args()
    message, code = explain(Evidence.read(options.out, options.ranks, options.timeout))
    try:
        with writing(options.out / "log.txt") as path, path.open("a", encoding="utf-8") as log:
            log.write(f"{message}\n")
    except InputError as full:  # then the ranks could not leave a report either
        message, code = str(full), full.exit_code
    sys.stdout.write(json.dumps({"message": message, "exit_code": code}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
