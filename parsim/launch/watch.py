"""Waits for torchrun and sees to it that faults end in time.

Ranks leave reports in `OUT/errors/attempt<A>/` (executor/faults/reports.py). While torchrun may
start them again it is left alone, but for ranks that are stopped: they do not follow its signal to
end, and it would wait half a minute for each before it kills them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from parsim.errors import ParsimError

GRACE = 5.0
"""Seconds that torchrun gets to end its ranks, before it and they are killed."""

RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""Environment variable of torchrun's ranks: how often it had started them again."""

_POLL = 0.1  # seconds


class Terminated(ParsimError):
    """Another process asked this one to end; the exit code is the shell's, 128 + the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and a closed terminal unwind this process as Ctrl-C does, so nothing is left.

    Raises:
        Terminated: such a signal came.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        with suppress(ValueError):  # not in the main thread: then that one is ended, or nohup's
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_end(
    process: subprocess.Popen[bytes], errors: Path, restarts: int, tell: Callable[[], None]
) -> None:
    """Wait for the end; once a rank fails in the last attempt, the others get GRACE seconds.

    Meanwhile `tell` is called over and over, to pass on what is new.
    """
    first_seen: dict[Path, float] = {}
    while process.poll() is None and not any(errors.glob(f"attempt{restarts}/rank*.json")):
        time.sleep(_POLL)
        tell()
        _end_stopped(process, errors, first_seen)
        if restarts and _no_restart_helps(errors):
            process.terminate()
            break
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE)
        tell()
        return
    process.kill()


def _no_restart_helps(errors: Path) -> bool:
    """Whether a rank reported that the input is wrong, or the disk full."""
    for report in errors.glob("attempt*/rank*.json"):
        with suppress(OSError, ValueError):
            if json.loads(report.read_text("utf-8"))["kind"] == "input":
                return True
    return False


def _end_stopped(process: subprocess.Popen[bytes], errors: Path, seen: dict[Path, float]) -> None:
    """Kill a stopped rank once GRACE seconds have passed since another of its attempt failed."""
    now = time.monotonic()
    failed = {
        path.parent.name
        for path in errors.glob("attempt*/rank*.json")
        if now - seen.setdefault(path, now) > GRACE
    }
    for rank in _stopped_children(process.pid) if failed else ():
        if f"attempt{_attempt(rank)}" in failed:
            with suppress(OSError):
                os.kill(rank, signal.SIGKILL)


def attempt() -> int:
    """How often torchrun has started this rank and the others of its machine again."""
    return int(os.environ.get(RESTARTS, "0"))


def _attempt(rank: int) -> str:
    """How often torchrun had started ranks again when it started this one."""
    with suppress(OSError):
        variables = Path(f"/proc/{rank}/environ").read_text(errors="replace").split("\0")
        pairs = dict(pair.partition("=")[::2] for pair in variables)
        return pairs.get(RESTARTS, "")
    return ""


def _stopped_children(parent: int) -> Iterator[int]:
    """Processes that a signal has stopped; none where there is no /proc."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "7 (a name) T 1 ...": the name may hold anything, the rest no bracket
            state, begun_by = path.read_text().rpartition(")")[2].split()[:2]
            if state == "T" and int(begun_by) == parent:
                yield int(path.parent.name)
