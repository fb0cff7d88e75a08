"""One run at a time in a folder: a lock that the system takes back when its owner dies.

The lock is flock(2) on `OUT/.lock`, so nothing is left to clear away after a crash. The file says
whose it is. Nodes of one run may share a folder; they hold it together.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parsim.errors import InputError, printable

NAME = ".lock"
PATIENCE = 1.0
"""Seconds to wait for a lock: a killed run may not be gone yet, and the first of a run's nodes may
not have signed."""


@contextmanager
def locked(folder: Path, run: str = "") -> Iterator[int]:
    """Hold a folder, which is made, for this process; the descriptor that keeps it.

    Another process gets in only as a node of the same `run`. A file system without locks locks
    nothing.

    Raises:
        InputError: another run writes there, or nothing can be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename or folder}: {error.strerror}; "
            f"choose another folder with --out, or free space there"
        ) from None
    try:
        _take(descriptor, folder, run)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path, run: str) -> None:
    until = time.monotonic() + PATIENCE
    while not _taken(descriptor, run):
        if time.monotonic() >= until:
            owner = os.pread(descriptor, 4096, 0).decode("utf-8", "replace").partition("\n")[2]
            raise InputError(
                f"--out={folder} is in use: {printable(owner.strip()) or 'another process'} is "
                f"writing there; wait until it ends, or choose another folder with --out"
            )
        time.sleep(0.05)


def _taken(descriptor: int, run: str) -> bool:
    """Whether the folder is this process's now, or its run's."""
    if _flock(descriptor, fcntl.LOCK_EX):
        owner = f"{run}\nprocess {os.getpid()} on {socket.gethostname()}\n"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
        return not run or _flock(descriptor, fcntl.LOCK_SH)
    theirs = os.pread(descriptor, 4096, 0).decode("utf-8", "replace").partition("\n")[0]
    return bool(run) and theirs == run and _flock(descriptor, fcntl.LOCK_SH)


def _flock(descriptor: int, kind: int) -> bool:
    """Whether the lock was free; also where the file system has none."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def main(words: Sequence[str]) -> int:
    """Lock a folder for a run, and become the command that follows; 2 if the folder is in use.

    The words are the folder, the run or nothing, and the command, which keeps the lock's file open
    and so holds the lock until it ends. Scripts of `--emit` begin with this.
    """
    folder, run, *command = words
    try:
        with locked(Path(folder), run) as descriptor:
            os.set_inheritable(descriptor, True)
            os.execvp(command[0], command)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
