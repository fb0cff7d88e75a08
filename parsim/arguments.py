"""Arguments of Python calls that are of another kind than a function takes: one message for all.

    search(scenario, top="3")    top='3' is of type str; top takes a whole number

Enters a name and a value, leaves the value or an `InputError`. Ranges of values are checked where
they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from os import PathLike

from parsim.errors import InputError, alternatives, matching, shown

PATH = (str, PathLike)
"""Kinds of value that name a file."""
File = str | PathLike[str]
"""What an argument that names a file is."""
Kinds = type | tuple[type, ...]


def check_kind(name: str, value: object, kinds: Kinds, takes: str) -> None:
    """Refuse a value that is of none of these kinds; `takes` says what is allowed.

    Raises:
        InputError: naming the argument, its value, and what it takes.
    """
    if not isinstance(value, kinds):
        raise _wrong(name, value, takes)


def check_function(name: str, value: object) -> None:
    """Refuse what is neither None nor can be called.

    Raises:
        InputError: as `check_kind`.
    """
    if value is not None and not callable(value):
        raise _wrong(name, value, "a function, or None")


def check_whole(name: str, value: object) -> None:
    """Refuse what is no whole number: texts, fractions, True.

    Raises:
        InputError: as `check_kind`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _wrong(name, value, "a whole number")


def check_number(name: str, value: object) -> None:
    """Refuse what is no number: texts, True.

    Raises:
        InputError: as `check_kind`.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong(name, value, "a number")


def _wrong(name: str, value: object, takes: str) -> InputError:
    given = f"{name}={shown(repr(value))}"
    kind = "" if value is None else f" is of type {type(value).__name__}"
    return InputError(f"{given}{kind}; {name} takes {takes}")


def several(name: str, value: object, single: Kinds, takes: str) -> list[object]:
    """The values of a list, or the only one: a text or a path is not taken apart.

    Raises:
        InputError: neither, or an empty list.
    """
    if isinstance(value, single):
        return [value]
    if not isinstance(value, Iterable):
        raise _wrong(name, value, takes)
    values = list(value)
    if not values:
        raise InputError(f"{name}={shown(repr(value))} is empty; {name} takes {takes}")
    for each in values:
        check_kind(name, each, single, takes)
    return values


def known_name(label: str, word: object, allowed: Sequence[str]) -> str:
    """One of these names, in any case.

    Args:
        label: what stands in front of the word in a message: `kinds=` or `--kind `.
        word: what was given.
        allowed: the names.

    Raises:
        InputError: it is none of them.
    """
    name = matching(word, allowed) if isinstance(word, str) else None
    if name is None:
        raise InputError(f"{label}'{shown(word)}' is unknown{alternatives(str(word), allowed)}")
    return name
