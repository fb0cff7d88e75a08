"""Words of a launch script by the flag that they stand behind, and which flags were looked at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from math import inf, isinf

from parsim.errors import InputError, shown
from parsim.units import whole_number

Arguments = Mapping[str, list[str]]
"""Values behind each flag; none behind a switch."""


def arguments_of(text: str) -> Arguments:
    """Flags with what stands behind them; comments, shell words and line ends are left out.

    Of a flag that is repeated the last one counts, as with argparse.

    Raises:
        InputError: quotes that do not close.
    """
    lines = [line.replace("\\", " ") for line in without_comments(text)]
    try:
        words = _words(" ".join(lines))
    except ValueError as error:
        raise InputError(f"cannot read the arguments: {error}") from None
    arguments: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        name, sign, value = word.partition("=")
        if word.startswith("--"):
            arguments[name] = values = [value] if sign else []
        elif values is None or _ends_a_list(word):
            values = None
        else:
            values.append(word)
    return arguments


def without_comments(text: str) -> list[str]:
    """The lines of a shell script, each up to its comment."""
    return [re.sub(r"(^|\s)#.*$", "", line) for line in text.splitlines()]


def _words(line: str) -> list[str]:
    """Words as a shell reads them; brackets stay where quotes keep them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="()")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in lexer:
        name, sign, value = word.partition("=")
        if sign and name.isidentifier() and value.lstrip().startswith("--"):
            words += [f"{name}=", *_words(value), ")"]  # ARGS="--flag value --flag"
        elif word.startswith("--") and " " in word:  # an array's "--flag value"
            words += _words(word)
        elif set(word) != {"("}:
            words.append(word)
    return words


def _ends_a_list(word: str) -> bool:
    """Whether a word is no value: the end of a shell's array, or another variable's."""
    name, sign, _ = word.partition("=")
    return bool(sign and name.isidentifier()) or not set(word) - {"(", ")"}


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

    def first(self, flag: str) -> str:
        """The first word behind a flag, which is not looked at yet."""
        return (self.given.get(flag) or [""])[0]

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

    def real(self, flag: str, default: float) -> float:
        """The number behind a flag that takes fractions; at least 0."""
        text = self.word(flag, str(default))
        number = float(text) if re.fullmatch(r"\d*\.?\d+(e-?\d{1,3})?", text, re.I) else inf
        if isinf(number):
            raise InputError(
                f"{flag} {shown(text)} must be a number; write out what the shell puts in"
            )
        return number

    def count(self, flag: str, default: int = 1) -> int:
        """The number behind a flag that counts ranks, heads, stages or the like."""
        number = self.number(flag, default)
        if number < 1:
            raise InputError(f"{flag} {number} must be at least 1")
        return number
