"""Reads files: those that people hand over, regular and not endless, and shipped ones by entries.

Every reader of a user's file asks here, so that a device, a pipe, a folder or a file of gigabytes
is refused in words before anything is made of it. Parsed text takes up to twenty times its bytes
in memory, and YAML minutes a MiB, so each kind of file has a size that is enough for any real one.
A file that gzip packed is unpacked; the size counts what was in it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from parsim.errors import InputError, did_you_mean, shown
from parsim.parsed import ParsedTexts
from parsim.units import GIB, format_bytes

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MOST_TEXT: Final = 64 << 20
"""Bytes of JSON or XML: a timeline of a million spans."""

MOST_ROWS: Final = 16 << 20
"""Bytes of CSV: two million actions of a schedule, or tens of thousands of measured runs."""

MOST_YAML: Final = 256 << 10
"""Bytes of YAML, which is read at some 20 kB a second: ten times the longest file shipped."""

GZIP: Final = b"\x1f\x8b"
"""The first bytes of a file that gzip packed."""

MOST_CORPUS: Final = GIB
"""Bytes of a text to train on, which is taken as it is."""


def read_text(
    path: Path,
    *,
    most: int = MOST_TEXT,
    error: type[InputError] = InputError,
    near: tuple[str, ...] = (),
    missing: str = "",
) -> str:
    """The text of a file, without a byte order mark.

    Args:
        path: the file.
        most: bytes that it may have.
        error: what is raised.
        near: suffixes of files that are proposed where this one is missing or is a folder.
        missing: what to give, said of a missing file: `; name a ...`.

    Raises:
        InputError: it is missing, a folder, no regular file, too long, or no UTF-8 text; an `error`
            whose message starts with the path.
    """
    try:
        return _content(path, most).decode("utf-8-sig")
    except FileNotFoundError:
        hint = did_you_mean(path.name, _files_in(path.parent, near))
        raise error(f"{_names_cut(path)}: no such file{hint}{missing}") from None
    except IsADirectoryError:
        inside = ", ".join(_files_in(path, near))
        raise error(f"{path}: is a folder; give one file{inside and ': '}{inside}") from None
    except UnicodeDecodeError as wrong:
        byte = f"byte 0x{wrong.object[wrong.start]:02x} at {wrong.start}"
        raise error(f"{path}: is not UTF-8 text: {byte}") from None
    except _Refused as reason:
        raise error(f"{path}: {reason}") from None
    except (OSError, ValueError) as reason:  # ValueError: a path with a NUL in it
        why = getattr(reason, "strerror", None) or str(reason)
        too_long = getattr(reason, "errno", None) == errno.ENAMETOOLONG
        raise error(f"{shown(path) if too_long else path}: cannot be read: {why}") from None


def read_json(
    path: Path,
    *,
    error: type[InputError] = InputError,
    near: tuple[str, ...] = (),
    missing: str = "",
) -> Any:  # noqa: ANN401 - whatever was written
    """What a JSON file holds; the arguments are those of `read_text`.

    Raises:
        InputError: as `read_text`, or it is not JSON.
    """
    text = read_text(path, error=error, near=near, missing=missing)
    try:
        return json.loads(text)
    except json.JSONDecodeError as wrong:
        raise error(f"{path}:{wrong.lineno}:{wrong.colno} not JSON: {wrong.msg}") from None
    except RecursionError:
        raise error(f"{path}: not JSON that can be read: nested too deeply") from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise error(f"{path}: not JSON that can be read: a number is too long") from None


def _names_cut(path: Path) -> Path:
    """A path whose names of folders and of the file are cut as values are: depth is no slip."""
    return Path(*map(shown, path.parts))


class _Refused(Exception):
    """What is there is not what is read; the text says why."""


def _content(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most so many."""
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError
    # a pipe that nobody writes to must not be waited for
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _Refused("is no regular file but a device, a pipe or a socket; save it first")
        content = _unpacked(file.read(most + 1), most)
    if len(content) > most:
        raise _Refused(f"has more than {format_bytes(most)}, which no file of its kind needs")
    return content


def _unpacked(content: bytes, most: int) -> bytes:
    """What gzip packed, of at most a byte more than so many; other content as it is."""
    if not content.startswith(GZIP):
        return content
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with gzip's head
    try:
        inside = unpacking.decompress(content, most + 1)
    except zlib.error:
        raise _Refused("is gzip, but damaged") from None
    if len(inside) <= most and not unpacking.eof:
        raise _Refused("is gzip, but cut short")
    return inside


def _files_in(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Names of the files in a folder with one of the suffixes; none where it cannot be read."""
    if not suffixes:
        return []
    try:
        return sorted(file.name for file in folder.iterdir() if file.suffix in suffixes)
    except (OSError, ValueError):
        return []


T = TypeVar("T")


class OnDemand(Mapping[str, T]):
    """A mapping whose values are made when they are first asked for.

    Composing the YAML of all known models takes a tenth of a second, of one of them a millisecond,
    so the text is cut before each line that begins an entry, which is how the shipped files are
    laid out.
    """

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


def entries_of(file: Traversable) -> Mapping[str, dict[str, Any]]:
    """The entries of a shipped YAML file, each parsed when it is first asked for."""
    blocks = entry_texts(file.read_text(encoding="utf-8"))
    parsed = ParsedTexts(file, blocks.values(), _loaded)
    return OnDemand(blocks, lambda name: parsed(blocks[name])[name])


def _loaded(text: str) -> Any:  # noqa: ANN401 - whatever was written
    from ruamel.yaml import YAML  # only commands that need an entry load it

    return YAML(typ="safe", pure=True).load(text)
