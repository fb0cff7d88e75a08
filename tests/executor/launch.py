"""Runs a worker script on several processes, and ends all of them whatever happens.

A worker calls `results` with what it found; `launch` returns that by rank. The processes get one
thread each, since they share the machine's few cores, and are forked (see `forkserver`). The
tests of `parsim run` start theirs with torchrun.
"""

from __future__ import annotations

import atexit
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.executor.forkserver import Server, die_with_parent

__all__ = ["LaunchError", "die_with_parent", "launch", "results", "server"]


class LaunchError(Exception):
    """The workers failed or took too long; the message ends with what they wrote."""


@cache
def server() -> Server:
    """This process's server."""
    found = Server()
    atexit.register(found.close)
    return found


def launch(worker: Path, *args: str, ranks: int, folder: Path, timeout: float) -> list[Any]:
    """Run `worker` with a folder and `args`; what each rank wrote, in order of rank.

    Raises:
        LaunchError: a rank failed, wrote nothing, or ran longer than `timeout` seconds.
    """
    words, output = [str(worker), str(folder), *args], folder / "output.txt"
    ended = server().run(words, ranks=ranks, output=output, timeout=timeout)
    text = output.read_text(errors="replace")[-8000:]
    if ended.late:
        raise LaunchError(f"no end after {timeout} s: {' '.join(words)}\n{text}")
    if ended.code:
        raise LaunchError(f"exit code {ended.code}: {' '.join(words)}\n{text}")
    files = [folder / f"rank{rank}.json" for rank in range(ranks)]
    silent = [file.name for file in files if not file.exists()]
    if silent:
        raise LaunchError(f"not written: {', '.join(silent)}\n{text}")
    return [json.loads(file.read_text()) for file in files]


def results(folder: str, rank: int, found: object) -> None:
    """Called by a worker: leave what it found for `launch`."""
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
