"""The command `parsim`, also as `python -m parsim`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from pathlib import PurePath

COLLECTED = 1_000_000
"""New objects after which garbage is looked for. Modules and models are many objects that stay;
looking through them as often as usual, after 700, takes a tenth of a short command's time, half
of it while modules are imported."""


def main() -> int:
    """Run the command line, its modules imported behind this setting; the exit code.

    A process that was started for the command ends here.
    """
    gc.set_threshold(COLLECTED)
    from parsim.cli.app import main as command

    code = command()
    if _started() and threading.active_count() == 1 and not _observed():
        _leave(code)
    return code


def _started() -> bool:
    """Whether the process was started for this command, which is not run within another one."""
    words = sys.argv[1:]
    first = len(sys.orig_argv) - len(words)
    return sys.orig_argv[first:] == words and PurePath(sys.orig_argv[first - 1]).stem == "parsim"


def _leave(code: int) -> None:
    """End at once what has nothing left to do but to free its objects.

    One after another that takes a seventh of a short command's time, and the system frees all of
    the process's memory anyway (mypy ends so too). What is registered for the end is still run.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _observed() -> bool:
    """Whether a debugger or a profiler looks on, which tells what it saw behind the command."""
    if sys.version_info >= (3, 12) and any(map(sys.monitoring.get_tool, range(6))):
        return True
    return sys.gettrace() is not None or sys.getprofile() is not None


if __name__ == "__main__":
    raise SystemExit(main())
