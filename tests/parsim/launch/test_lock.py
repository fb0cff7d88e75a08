"""Two runs into one folder: the second is refused, unless it is a node of the first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.launch.lock import NAME, locked

HOLD = """
import sys
from pathlib import Path
from parsim.launch.lock import locked
with locked(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path, run: str = "") -> subprocess.Popen[str]:
    """A process that holds a folder until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_dies_with_its_owner(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        told = f"--out={tmp_path} is in use: process {process.pid} on "
        with pytest.raises(InputError, match=re.escape(told)), locked(tmp_path):
            pass
        process.kill()
        process.wait(30)
    with locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_nodes_of_one_run_share_a_folder(tmp_path: Path) -> None:
    with holder(tmp_path, "run-1") as process:
        with locked(tmp_path, "run-1"):
            pass
        for other in ("run-2", ""):
            with pytest.raises(InputError, match="is in use"), locked(tmp_path, other):
                pass
        process.kill()


def test_a_folder_that_refuses_files(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(InputError, match="choose another folder with --out"), locked(tmp_path):
        pass


def test_a_command_holds_the_folder_until_it_ends(tmp_path: Path) -> None:
    """What scripts of --emit begin with."""
    command = [sys.executable, "-m", "parsim.launch.lock", str(tmp_path), ""]
    waiting = [sys.executable, "-c", "print('held', flush=True); input()"]
    with subprocess.Popen(
        [*command, *waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        refused = subprocess.run([*command, "true"], capture_output=True, text=True)
        assert refused.returncode == 2
        told = f"error: --out={tmp_path} is in use: process {process.pid} on "
        assert refused.stderr.startswith(told)
        process.communicate("\n")
    assert subprocess.run([*command, sys.executable, "-c", "raise SystemExit(3)"]).returncode == 3
