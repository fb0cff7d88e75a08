"""What goes to which stream, the same bytes each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, SMALL, Cli, process


@pytest.mark.parametrize("command", ["check", "simulate", "search"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_same_input_same_output(cli: Cli, command: str, flags: tuple[str, ...]) -> None:
    assert cli(command, SMALL, *flags) == cli(command, SMALL, *flags)


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_same_input_same_file(cli: Cli, tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    cli("timeline", SMALL, "-o", first)
    cli("timeline", SMALL, "-o", second)
    assert first.read_bytes() == second.read_bytes()


def test_a_process_says_the_same_without_colour(cli: Cli) -> None:
    done, again = process("search", SMALL), process("search", SMALL, COLUMNS="40")
    assert done == again == cli("search", SMALL)
    assert "\x1b" not in done.out + done.err


def test_a_process_ends_with_the_exit_code() -> None:
    done = process("check", "nowhere.yaml")
    assert done == (2, "", "error: nowhere.yaml: no such file\n")


def test_an_encoding_without_the_characters_is_enough() -> None:
    done = process("simulate", SMALL, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "?" * 8 in done.out


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_is_no_error(flags: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "parsim", "catalog", "schedules", *flags],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
