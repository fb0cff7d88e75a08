"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from executor.suite.machine import environment
from parsim.launch.ranks import PARENT
from tests.executor.forkserver import Server

WATCHING = """
import os, sys, time
from executor.faults.parent import watch
watch(os.getppid())
print("watching", flush=True)
time.sleep(60)
"""
STARTING = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {WATCHING!r}])
"""
BOUND = "from executor.faults.parent import end_with_parent; end_with_parent(); print('alive')"
NESTED = f"""
import subprocess, sys
from executor.faults.parent import end_with_parent
end_with_parent()
bound = "import os; os.environ['RANK'] = '0'; " + {BOUND!r}
raise SystemExit(subprocess.run([sys.executable, "-c", bound]).returncode)
"""


def test_a_thread_notices_where_the_system_does_not_tell() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "watching\n"
        parent.kill()
        parent.wait(30)
        assert parent.stdout.read() == ""  # the child, which has the pipe too, is gone


@pytest.mark.parametrize(("parent", "code"), [(None, 0), (1, -signal.SIGKILL)])
def test_a_parent_that_died_before_is_missed(parent: int | None, code: int) -> None:
    environment = {**os.environ, PARENT: str(parent or os.getpid())}
    done = subprocess.run([sys.executable, "-c", BOUND], env=environment, check=False)
    assert done.returncode == code


def test_the_name_of_a_parent_is_not_inherited() -> None:
    environment = {**os.environ, PARENT: str(os.getpid())}
    done = subprocess.run([sys.executable, "-c", NESTED], env=environment, check=False)
    assert done.returncode == 0


def test_ranks_of_the_suite_are_told_who_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT, "1")
    assert environment()[PARENT] == str(os.getpid())


def test_forked_ranks_know_their_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv(PARENT, str(os.getpid()))
    (tmp_path / "bound.py").write_text(BOUND)
    server = Server()
    ended = server.run(
        [str(tmp_path / "bound.py")], ranks=1, output=tmp_path / "log.txt", timeout=60.0
    )
    server.close()
    assert ended.codes == (0,)
