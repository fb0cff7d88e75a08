"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from parsim.launch.ranks import PARENT

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
