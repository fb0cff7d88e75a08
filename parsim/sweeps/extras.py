"""Packages that a sweep can use and parsim does not need: joblib and what it runs on, pyarrow."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from parsim.errors import InputError


def extra_module(module: str, extra: str, asked: str) -> ModuleType:
    """Import a module of an extra.

    Args:
        module: its dotted name.
        extra: the extra of parsim that installs it.
        asked: what the user asked for, e.g. `--backend ray`.

    Raises:
        InputError: it is not installed; the message has the command that does.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or module).partition(".")[0]
        raise InputError(
            f"{asked} needs {package}, which is not installed; install it with: "
            f"pip install '.[{extra}]'"
        ) from None
