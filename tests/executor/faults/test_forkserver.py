"""The server that forks ranks: what one launch meets does not spoil those behind it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.executor import forkserver
from tests.executor.forkserver import Limit, Server, ServerError


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def request(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "script.py"
    path.write_text(text)
    return {"words": [str(path)], "ranks": 1, "output": folder / "said.txt", "timeout": 60.0}


@pytest.mark.distributed
def test_an_answer_that_nobody_waited_for_is_not_the_next_one_s(
    server: Server, tmp_path: Path
) -> None:
    """A test may be interrupted while its ranks run."""
    asked = request(tmp_path, "raise SystemExit(7)")
    asked |= {"number": -1, "output": str(asked["output"]), "environment": {}}
    assert server._process.stdin is not None
    server._process.stdin.write(json.dumps({**asked, "errors": asked["output"]}) + "\n")
    server._process.stdin.flush()
    other = tmp_path / "other"
    other.mkdir()
    assert server.run(**request(other, "raise SystemExit(3)")).codes == (3,)


@pytest.mark.distributed
def test_a_killed_server_fails_one_launch_and_says_so(server: Server, tmp_path: Path) -> None:
    killing = "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    with pytest.raises(ServerError, match="ended with code -9"):
        server.run(**request(tmp_path, killing))
    assert server.run(**request(tmp_path, "raise SystemExit(4)")).codes == (4,)


def seconds_given(pid: int, until: float) -> float:
    """How long a process that may take 0.1 s is not late, looked at for some seconds."""
    limit, began = Limit(0.1, [pid]), time.monotonic()
    while not limit.over() and time.monotonic() - began < until:
        sum(range(100_000))
    return time.monotonic() - began


def test_who_computes_has_more_time_and_who_hangs_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forkserver, "STILL", 1.0)
    monkeypatch.setattr(forkserver, "BUSIEST", 100.0)
    hanging = os.fork()
    if hanging == 0:
        signal.pause()
    try:
        assert seconds_given(hanging, 9.0) < 8.0
    finally:
        os.kill(hanging, signal.SIGKILL)
        os.waitpid(hanging, 0)
    assert seconds_given(os.getpid(), 3.0) >= 3.0
    monkeypatch.setattr(forkserver, "BUSIEST", 10.0)
    assert seconds_given(os.getpid(), 9.0) < 8.0
