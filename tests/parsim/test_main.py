"""How the process of a command ends: at once, unless somebody waits for what comes behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands import ROOT

START = """
import atexit, sys, threading
from parsim.__main__ import main
atexit.register(print, "registered")
sys.argv = ["parsim", *sys.argv[1:]]
sys.orig_argv = [sys.executable, "-m", *sys.argv]
{before}
code = main()
print("behind", code)
"""


def ended(before: str, *words: str) -> tuple[int, list[str]]:
    """Exit code and lines of a process that calls the command line's `main`."""
    command = [sys.executable, "-c", START.format(before=before), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_a_command_ends_its_process_with_its_code_and_runs_what_is_registered() -> None:
    code, lines = ended("", "--version")
    assert code == 0
    assert lines[0].startswith("parsim ")
    assert lines[1:] == ["registered"]
    assert ended("", "check", "missing.yaml") == (2, ["registered"])


@pytest.mark.parametrize(
    "before",
    [
        "sys.setprofile(lambda *_: None)",
        "sys.settrace(lambda *_: None)",
        "sys.orig_argv = [sys.executable, 'worker.py']",
        "threading.Thread(target=threading.Event().wait, args=(3.0,)).start()",
    ],
)
def test_a_process_with_more_to_do_ends_as_usual(before: str) -> None:
    code, lines = ended(before, "--version")
    assert code == 0
    assert lines[1:] == ["behind 0", "registered"]


def test_a_full_disk_under_the_output_is_no_bug() -> None:
    command = [sys.executable, "-m", "parsim", "--help"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == "error: cannot write the output: No space left on device\n"
