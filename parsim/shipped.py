"""Shipped files of many entries, of which a command needs a few: entries are parsed on demand.

Composing the YAML of all known models takes a tenth of a second, of one of them a millisecond, so
the text is cut before each line that begins an entry, which is how the shipped files are laid out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class OnDemand(Mapping[str, T]):
    """A mapping whose values are made when they are first asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._names = tuple(names)
        self._make = make
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def entry_texts(text: str, *, indent: int = 0) -> dict[str, str]:
    """The lines of each entry of a mapping by its name; names stand behind `indent` spaces."""
    inner = f" {{{indent + 1},}}"
    entry = re.compile(rf"^ {{{indent}}}([a-z0-9.-]+):\n(?:{inner}.*\n|\n)*", re.MULTILINE)
    return {match[1]: match[0] for match in entry.finditer(text)}


def entries_of(text: str) -> Mapping[str, dict[str, Any]]:
    """The entries of a shipped YAML file, each parsed when it is first asked for."""
    blocks = entry_texts(text)

    def parsed(name: str) -> dict[str, Any]:
        from ruamel.yaml import YAML  # only commands that need an entry load it

        entry: dict[str, Any] = YAML(typ="safe", pure=True).load(blocks[name])[name]
        return entry

    return OnDemand(blocks, parsed)
