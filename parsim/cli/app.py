"""The command line: arguments in, exit code out; no physics, heavy imports inside commands.

Results go to stdout, progress and notes to stderr. Exit codes: 0 done, 1 a bug of parsim, 2 the
user's input is wrong, 3 nothing feasible, 4 a comparison fell outside its tolerance, 5 ranks failed
while running, 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated

import typer

from parsim.cli.terminal import INTERRUPTED
from parsim.errors import InputError, ParsimError, printable, shown

PANELS: Mapping[str, Mapping[str, str]] = {
    "Begin": {
        "init": "planning.init",
        "check": "simulate",
        "catalog": "catalog",
        "import-config": "planning.export",
        "profile": "profile",
    },
    "Choose": {
        **{name: f"planning.{name}" for name in ("search", "why")},
        "guide": "guide",
        "sweep": "planning.sweep",
    },
    "One plan": {
        "simulate": "simulate",
        "timeline": "timeline",
        "report": "planning.report",
        "export": "planning.export",
    },
    "Measure": {
        "run": "run",
        "calibrate": "calibrate",
        "compare": "timeline",
        "validate": "validate",
    },
    "Pipelines and networks by themselves": {
        "schedules": "schedules",
        "partition": "partition",
        "collectives": "benchmark.collectives",
    },
}
"""The module of each command, which has a function of its name; in the order of help."""

COMMANDS: Mapping[str, str] = {
    name: module for commands in PANELS.values() for name, module in commands.items()
}
"""The module of each command."""


@cache
def application(named: str) -> typer.Typer:
    """The command line with one command, by its name; with all of them where it is empty.

    The others are not imported, which would take a short search a thirtieth longer.
    """
    app = typer.Typer(
        name="parsim",
        help="Predict step time, bubble and memory of parallel training plans, and find the best "
        "one.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for panel, commands in PANELS.items():
        for name in commands:
            if not named or name == named:
                _add(app, name, panel)
    return app


def _add(app: typer.Typer, name: str, panel: str) -> None:
    """Add a command to the part of the help that it stands in."""
    module = import_module(f"parsim.cli.{COMMANDS[name]}")
    if name == "catalog":  # a group of commands
        app.add_typer(module.app, rich_help_panel=panel)
    else:
        app.command(rich_help_panel=panel)(getattr(module, name.replace("-", "_")))


def _called(words: list[str]) -> int:
    """Call the command that the words name, and return its exit code."""
    named = next((word for word in words if not word.startswith("-")), "")
    named = named if named in COMMANDS else ""
    result = application(named)(args=words, standalone_mode=False)
    sys.stdout.flush()
    if result == INTERRUPTED:  # typer makes it of Ctrl-C within a command
        sys.stderr.write("interrupted\n")
    return result if isinstance(result, int) else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; never a traceback without --debug."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    # no plugin checks what parsim reads, and looking for some costs every command 10 ms
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _print_anywhere()
    try:
        return _called(words)
    except typer.Exit as stop:
        return stop.exit_code
    except ParsimError as error:
        if debug:
            raise
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer makes the first into the second
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _unexpected(error, debug)


def _print_anywhere() -> None:
    """Print a question mark for what the encoding of the terminal or file does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _unexpected(error: Exception, debug: bool) -> int:
    usage = getattr(error, "format_message", None)
    if usage is not None:  # typer's own usage errors; no text where it has printed the help
        if text := usage():
            words = " ".join(map(shown, text.split(" ")))  # it repeats what was typed
            _complain(f"{words} (see {_help_of(error)})")
        return 2
    if debug:
        raise error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _complain(f"cannot write the output: {error.strerror}")
        return InputError.exit_code
    _complain(
        f"bug in parsim: {type(error).__name__}: {error}; please report it, with the output of "
        f"the same command and --debug"
    )
    return 1


def _help_of(error: Exception) -> str:
    """The command line that explains the command that was called wrongly."""
    context, names = getattr(error, "ctx", None), ["--help"]
    while context is not None and context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(["parsim", *names])


def _complain(text: str) -> None:
    safe = "\n".join(map(printable, text.split("\n")))
    sys.stderr.write(f"error: {safe}\n")


def _version(show: bool) -> None:
    if show:
        from parsim import __version__

        sys.stdout.write(f"parsim {__version__}\n")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    """Options of every command."""
