"""How a process of the executor ends: by its exit code, and with the one that started it.

    parsim run -> torchrun (executor.faults.torchrun) -> ranks

Each is bound to its parent, so a killed parsim leaves nothing running. On Linux the system sends
the signal (prctl(2)), even to a process that is stopped; elsewhere a thread looks who the parent
is. Needs no torch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from executor.faults.messages import say
from parsim.errors import ParsimError
from parsim.launch.ranks import PARENT

LOOK = 0.5
"""Seconds between two looks at the parent, where the system does not tell of its end."""

_PR_SET_PDEATHSIG = 1  # Linux, prctl(2): a signal for this process when its parent dies


def end_with_parent() -> None:
    """Have this process killed when its parent dies: a rank always, others if parsim asks for it.

    The environment names the parent where that one might die before this is called. The name is
    taken out of it, for what this process starts has another parent.
    """
    expected = os.environ.pop(PARENT, None)
    if expected is None and "RANK" not in os.environ:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        watch(os.getppid())
    if expected is not None and os.getppid() != int(expected):
        _end()


def watch(parent: int) -> None:
    """Kill this process, from a thread of its own, once another process has become its parent."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        _end()

    threading.Thread(target=look, name="end-with-parent", daemon=True).start()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def command(work: Callable[[], int | None]) -> int:
    """Do a program's work, bound to the process that asked for it, and return its exit code.

    0 unless the work or an error says another; an error is told in one line.
    """
    end_with_parent()
    try:
        return work() or 0
    except ParsimError as error:
        say(f"error: {error}")
        return error.exit_code
