"""Runs a worker script on several processes, and ends all of them whatever happens.

A worker calls `results` with what it found; `launch` returns that by rank. The processes get one
thread each, since they share the machine's few cores, and are forked (see `forkserver`). The
tests of `parsim run` start theirs with torchrun.
"""

from __future__ import annotations

import atexit
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parsim.launch.nodes import ONE_NODE
from parsim.launch.ranks import settings
from tests.executor.forkserver import Server, die_with_parent

__all__ = ["LaunchError", "die_with_parent", "fork_runs", "launch", "results", "server"]


class LaunchError(Exception):
    """The workers failed or took too long; the message ends with what they wrote."""


@cache
def server() -> Server:
    """This process's server."""
    result = Server()
    atexit.register(result.close)
    return result


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


def fork_runs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let `parsim run` in this process fork its ranks, and the check before, without torchrun."""
    environment = settings(ONE_NODE, linux=True)

    def ask(module: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        text, errors = folder / "said.txt", folder / "errors.txt"
        for file in (text, errors):
            file.write_text("")
        ended = server().run(
            ["-m", module, *words],
            ranks=0,
            output=text,
            errors=errors,
            timeout=120.0,
            environment=environment,
        )
        if ended.late:
            raise LaunchError(f"no end after 120 s: {module} {' '.join(words)}")
        return subprocess.CompletedProcess(words, ended.code, text.read_text(), errors.read_text())

    def torchrun(
        layout: list[str],
        words: list[str],
        log: Path,
        _wait: object,
        also: Mapping[str, str] | None = None,
        keeps: object = (),
    ) -> int:
        ranks = int(layout[-1].removeprefix("--nproc-per-node="))
        ended = server().run(
            ["-m", *words],
            ranks=ranks,
            output=log,
            timeout=240.0,
            environment={**environment, **(also or {})},
        )
        if ended.late:
            raise LaunchError(f"no end after 240 s: {' '.join(words)}\n{log.read_text()[-8000:]}")
        return ended.code

    monkeypatch.setattr("parsim.launch.ranks.python", ask)
    monkeypatch.setattr("parsim.launch.launch.torchrun", torchrun)


def results(folder: str, rank: int, result: object) -> None:
    """Called by a worker: leave what it found for `launch`."""
    Path(folder, f"rank{rank}.json").write_text(json.dumps(result))
