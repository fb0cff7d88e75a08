"""Runs the command line the way a user does, and writes the tables a user would."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from parsim.cli.app import main
from parsim.validation.tables import shipped_tables

ROOT = Path(__file__).parent.parent
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
SMALL = str(ROOT / "scenarios" / "gpt2-small-cpu.yaml")
GPT3 = str(ROOT / "scenarios" / "gpt3-175b-dgx-a100.yaml")
LLAMA = str(ROOT / "scenarios" / "llama3-8b-dgx-h100.yaml")


class Ran(NamedTuple):
    """What a command ended with and wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout, without NaN or Infinity."""
        result: dict[str, Any] = json.loads(self.out, parse_constant=pytest.fail)
        return result


Cli = Callable[..., Ran]


@contextmanager
def heard_signals() -> Iterator[None]:
    """No signal is ignored, by this process or by one it starts, as in a terminal.

    nohup leaves SIGHUP ignored, `&` and cron SIGINT and SIGQUIT, and a new process inherits that.
    """
    ignored = [
        number
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def runner(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands in this process; whatever they do, they must not end in a traceback or a bug."""

    def run(*words: object) -> Ran:
        done = Ran(main([str(word) for word in words]), *capsys.readouterr())
        assert "Traceback" not in done.out + done.err
        assert "bug in parsim" not in done.err
        return done

    return run


def settings(*pairs: str) -> list[str]:
    """Overrides as options."""
    return [word for pair in pairs for word in ("--set", pair)]


def process(*words: object, **environment: str) -> Ran:
    """Run a command in a new process, whose streams are pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "parsim", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | environment,
        capture_output=True,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def write_rows(path: Path, *changes: dict[str, str]) -> Path:
    """A table of the user's: the first row of a shipped one, with changes."""
    table = next(path for path in shipped_tables() if "sc21_table1" in path.name)
    with table.open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerows({**row, **change} for change in changes)
    return path
