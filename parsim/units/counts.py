"""Whole numbers and numbers of tokens, read and written."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from parsim.errors import UnitError, shown

_SEPARATED = re.compile(r"(?P<digits>\d{1,3}(?:[,' ]\d{3})+)(?P<rest>(?![\d,' ]).*)", re.DOTALL)


def without_separators(text: str) -> str:
    """How a number is to be written that has separators between thousands; nothing of any other.

    It may also be a fraction (1,536 is one and a half to some), so that it is refused and not read.
    """
    match = _SEPARATED.fullmatch(str(text).strip())
    if match is None:
        return ""
    plain = re.sub("[,' ]", "", match["digits"])
    return f"; write {shown(plain + match['rest'])}, without separators between digits"


MOST_DIGITS: Final = 15
"""Nobody counts further; floats hold whole numbers of so many digits exactly."""


def whole_number(text: str) -> int | None:
    """The number that a text of digits says; None where it says none, or more than is counted."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def count_of(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        ValueError: the text is none.
    """
    count = whole_number(text)
    if not count:
        raise ValueError(f"'{shown(text)}' must be a whole number of at least 1")
    return count


_COUNTS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_COUNT = re.compile(r"(\d+\.?\d*(?:[eE]\+?\d{1,2})?)\s*([KMBT]?)", re.ASCII)
MOST_COUNTED = 1e18
"""More than all text there is, in tokens."""


def parse_count(text: str) -> float:
    """Read a number of tokens: `300B`, `1.4T`, `300e9` or a whole number.

    Raises:
        UnitError: the text is no number, has another suffix than K, M, B or T, or cannot be.
    """
    match = _COUNT.fullmatch(str(text).strip())
    if match is None and (hint := without_separators(text)):
        raise UnitError(f"'{shown(text)}' is not a number of tokens{hint}")
    if match is None:
        raise UnitError(
            f"'{shown(text)}' is not a number of tokens: write 300B, 1.4T or 300e9 (K M B T are "
            f"thousands, millions, billions, trillions)"
        )
    value = float(Decimal(match[1])) * _COUNTS.get(match[2], 1.0)
    if not 1.0 <= value <= MOST_COUNTED:
        raise UnitError(f"'{shown(text)}' tokens cannot be; allowed: 1 to {MOST_COUNTED:g}")
    return value


def format_count(amount: float) -> str:
    """Write a number of tokens with its suffix: 300B, 1.4T; small ones as they are."""
    for suffix, factor in reversed(_COUNTS.items()):
        if amount >= factor:
            return f"{amount / factor:.6g}{suffix}"
    return f"{amount:.6g}"


def counted(number: int, what: str) -> str:
    """Write a number of things: 1 rank, 2 ranks."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
