"""Runs one input in this process and says what is wrong with how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NoReturn

import typer.main

from parsim.cli.app import main
from parsim.errors import LONGEST_VALUE
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import MARK
from tests.fuzz.targets import ALONE, TARGETS

CODES = (0, 2, 3, 4)
"""Exit codes that an input may end in; 1 is a bug."""

MOST_TEXT = 20_000
"""Characters on stderr that anybody would read."""

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_WHOLE = re.compile(f"{MARK}{{{LONGEST_VALUE + 1}}}")


class TooSlow(BaseException):
    """An input took more seconds of CPU than it may."""


def made(seed: int, number: int, kind: str | None = None) -> tuple[str, Input]:
    """The input of this number: its kind, and what it is."""
    random = Random(f"{seed}:{number}")
    names = list(TARGETS)
    drawn = random.choices(names, [TARGETS[name][0] for name in names])[0]
    name = kind or drawn
    return name, ALONE[name](random) if name in ALONE else TARGETS[name][1](random)


def judged(given: Input, seconds: float) -> str | None:
    """What is wrong with what parsim did with an input, in the folder that is current."""
    for name, content in given.files.items():
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogatepass")
        Path(name).write_bytes(content)
    out, err = io.StringIO(), io.StringIO()
    try:
        with _limited(seconds), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(given.words))
    except TooSlow:
        return f"took more than {seconds:g} s of CPU"
    except BaseException as error:
        return f"raised {type(error).__name__}: {error}"[:300]
    return _wrong(given, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Interrupt what runs for longer, in seconds of CPU: other load on the machine is not its."""

    def stop(*_: object) -> NoReturn:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _wrong(given: Input, code: int, out: str, err: str) -> str | None:
    if code not in CODES or "bug in parsim" in err or "Traceback" in out + err:
        return f"exit code {code}: {err[-300:]}"
    if code != 0 and not err.strip():
        return f"exit code {code} without a word"
    if len(err) > MOST_TEXT:
        return f"{len(err)} characters on stderr: {err[:200]}"
    if sign := _OBEYED.search(err):
        return f"{sign[0]!r} on stderr: {err[max(0, sign.start() - 80) : sign.end() + 20]!r}"
    if whole := _WHOLE.search(err):
        return f"an uncut value on stderr: {err[max(0, whole.start() - 150) : whole.start()]!r}"
    return _wrong_document(out) if code == 0 and "--json" in given.words else None


def _wrong_document(out: str) -> str | None:
    try:
        json.loads(out, parse_constant=_refuse)
    except ValueError as error:
        return f"stdout is no JSON document: {error}: {out[-200:]}"
    return None


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def prepare() -> None:
    """Have typer make the commands once, not for every input: it takes half of the time."""
    typer.main.get_command = cache(typer.main.get_command)


def emptied(folder: Path) -> None:
    """Take away what the last input left."""
    for path in folder.iterdir():
        if path.is_file() or path.is_symlink():
            path.unlink()
