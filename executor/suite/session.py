"""Ranks that are kept for several cases: started, given orders, and ended whatever happens."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from executor.faults.diagnosis import Evidence, explain
from executor.faults.ports import free_port
from executor.faults.reports import LINGER
from executor.suite.machine import environment
from parsim.errors import ParsimError

GRACE = 5.0
"""Seconds that ranks get to end by themselves, or to say why they failed."""


class CaseError(ParsimError):
    """A case failed; its ranks are gone."""


class CaseStopped(CaseError):
    """A case took longer than it may; its ranks were ended."""


class Session:
    """Processes for cases of one world size; started with the first case, again after a failure."""

    def __init__(self, world_size: int, extra: Mapping[str, str] | None = None) -> None:
        self.world_size = world_size
        self._environment = environment(extra)
        self._ranks: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end(0.0)

    def run(
        self, words: Sequence[str], folder: Path, *, limit: float, backend: str | None = None
    ) -> None:
        """Run `python -m executor WORDS`, whose results go to `folder`, on all ranks.

        Raises:
            CaseStopped: the case took longer than `limit` seconds.
            CaseError: a rank failed or died.
        """
        if not self._ranks:
            self._ranks = [self._start(rank) for rank in range(self.world_size)]
        order = {"words": list(words), "out": str(folder), "port": free_port(), "backend": backend}
        line = json.dumps(order).encode() + b"\n"
        try:
            for process in self._ranks:
                if process.stdin is not None:
                    process.stdin.write(line)
                    process.stdin.flush()
        except BrokenPipeError:
            self._fail(folder)
        if not self._answered(limit):
            self._end(0.0)
            raise CaseStopped(f"stopped after {limit:.0f} s; see {_log(folder)}")
        if any(process.poll() is not None for process in self._ranks):
            self._fail(folder)
        shutil.rmtree(folder / "errors", ignore_errors=True)

    def close(self) -> None:
        """Let the ranks end; kill those that do not."""
        for process in self._ranks:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        self._end(GRACE)

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        variables = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
        size = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.world_size))
        return subprocess.Popen(
            [sys.executable, "-m", "executor.suite.ranks"],
            env={**self._environment, "MASTER_ADDR": "127.0.0.1", **variables, **size},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def _answered(self, limit: float) -> bool:
        """Wait for a line from each rank, or for the first one to end; False when it is late."""
        until = time.monotonic() + limit
        waiting = {process.stdout for process in self._ranks if process.stdout is not None}
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            for stream in ready:
                if not stream.readline():
                    _wait(self._ranks, time.monotonic() + LINGER)
                    return True
            waiting -= set(ready)
        return True

    def _fail(self, folder: Path) -> None:
        """Say which rank failed first; the others, its victims, are ended."""
        _wait(self._ranks, time.monotonic() + GRACE)
        codes = enumerate(process.poll() for process in self._ranks)
        exits = {rank: code for rank, code in codes if code is not None}
        self._end(0.0)
        evidence = Evidence.read(folder, self.world_size, 0.0)
        root = next((rank for rank, code in exits.items() if code), None)
        message, _ = explain(replace(evidence, exits=exits, root=root))
        raise CaseError(f"{message}; see {_log(folder)}")

    def _end(self, grace: float) -> None:
        _wait(self._ranks, time.monotonic() + grace)
        for process in self._ranks:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        self._ranks = []


def _wait(ranks: Sequence[subprocess.Popen[bytes]], until: float) -> None:
    """Wait until all ranks have ended, or until a moment."""
    for process in ranks:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))


def _log(folder: Path) -> str:
    return f"{folder.name}/log.txt"
