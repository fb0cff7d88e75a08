"""Words of a launch script by the flag that they stand behind, and which flags were looked at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from parsim.errors import InputError, shown
from parsim.units import whole_number

Arguments = Mapping[str, list[str]]
"""Values behind each flag; none behind a switch."""


def arguments_of(text: str) -> Arguments:
    """Flags with what stands behind them; comments, shell words and line ends are left out.

    Raises:
        InputError: quotes that do not close.
    """
    lines = [re.sub(r"(^|\s)#.*$", "", line).replace("\\", " ") for line in text.splitlines()]
    try:
        words = shlex.split(" ".join(lines).replace("(", " ").replace(")", " "))
    except ValueError as error:
        raise InputError(f"cannot read the arguments: {error}") from None
    arguments: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        name, sign, value = word.partition("=")
        if word.startswith("--"):
            values = arguments.setdefault(name, [])
            values.extend([value] if sign else [])
        elif values is not None and not (sign and name.isidentifier()):
            values.append(word)
        else:
            values = None
    return arguments


class Reader:
    """Values by flag, which flags were looked at, and notes of what had to be assumed."""

    def __init__(self, given: Arguments) -> None:
        self.given = given
        self.read: set[str] = set()
        self.notes: list[str] = []

    def has(self, flag: str) -> bool:
        """Whether a flag is given."""
        self.read.add(flag)
        return flag in self.given

    def word(self, flag: str, default: str) -> str:
        """The first word behind a flag."""
        return (self.given[flag] or [default])[0] if self.has(flag) else default

    def number(self, flag: str, default: int) -> int:
        """The number behind a flag."""
        text = self.word(flag, str(default))
        number = whole_number(text)
        if number is None:
            raise InputError(
                f"{flag} {shown(text)} must be a whole number; write out what the shell puts in"
            )
        return number

    def count(self, flag: str, default: int = 1) -> int:
        """The number behind a flag that counts ranks, heads, stages or the like."""
        number = self.number(flag, default)
        if number < 1:
            raise InputError(f"{flag} {number} must be at least 1")
        return number
