"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from executor.faults.parent import command
from executor.suite.machine import environment
from parsim.errors import InputError
from parsim.launch.ranks import PARENT
from tests.executor.forkserver import Server

ROOT = Path(__file__).parents[3]
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


def test_every_program_of_the_executor_ends_with_its_parent() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("executor/**/*.py")}
    programs = {path: text for path, text in texts.items() if '__name__ == "__main__"' in text}
    assert len(programs) > 10
    bound = re.compile(r"^    (end_with_parent\(\)|(return|    return) command\()", re.MULTILINE)
    unbound = {path.relative_to(ROOT) for path, text in programs.items() if not bound.search(text)}
    assert {str(path) for path in unbound} == {
        "executor/__main__.py",  # it calls executor.run.command
        "executor/calibration/learning.py",  # for people, who end it themselves
        "executor/faults/diagnosis.py",  # as the next one it takes a moment
        "executor/first_hour/needs.py",
    }


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [(None, 0, ""), (InputError("no such file"), 2, "error: no such file\n")],
)
def test_a_command_tells_an_error_in_one_line(
    error: InputError | None, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        if error is not None:
            raise error

    assert command(work) == code
    assert capsys.readouterr().err == told
