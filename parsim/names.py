"""Names that users write: found whatever their case; where there is none, the nearest are told."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from parsim.errors import LONGEST_VALUE, did_you_mean

MOST_LISTED = 12
"""Names that a message lists in full; of more it lists the nearest."""

NEAREST = 5


def matching(word: str, known: Iterable[str]) -> str | None:
    """The known name that is the word, or else the only one that differs from it by case alone."""
    names = list(known)
    if word in names:
        return word
    alike = [name for name in names if name.casefold() == word.casefold()]
    return alike[0] if len(alike) == 1 else None


def alternatives(
    word: str, known: Iterable[str], *, label: str = "allowed", listing: str = ""
) -> str:
    """What a message says behind an unknown word: a guess, and the names that there are.

    Args:
        word: what was written.
        known: the names.
        label: what they are, in front of a full list.
        listing: the command that prints all of them, for those that are too many for a message.
    """
    names = list(dict.fromkeys(known))
    hint = did_you_mean(word, names)
    if len(names) <= MOST_LISTED:
        return f"{hint}; {label}: {', '.join(names)}"
    more = f" (all of them: {listing})" if listing else ""
    return f"{hint}; nearest of {len(names)}: {', '.join(nearest(word, names))}{more}"


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The few names most like a word, the likest first: those that it is a part of, then others."""
    short = word[:LONGEST_VALUE].casefold()
    matcher = difflib.SequenceMatcher(b=short)

    def likeness(name: str) -> tuple[bool, float]:
        matcher.set_seq1(name.casefold())
        return short in name.casefold(), matcher.ratio()

    return sorted(known, key=likeness, reverse=True)[:NEAREST]
