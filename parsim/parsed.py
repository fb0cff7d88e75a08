"""What the texts of shipped YAML files parse to, kept from one process to the next.

    parsim/cost/software.yaml                              its entries' texts, which alone count
    parsim/cost/__pycache__/software.yaml.cpython-311.1    what those parsed to that were asked for

ruamel.yaml takes milliseconds to compose an entry, which made a twentieth of a short command. What
is kept stands under the whole text of its entry, so that an edited one is parsed anew. It lies
where Python keeps compiled modules, by the same rules: nothing is written where those are not.
Its first bytes are a digest of the rest: marshal may crash or take gigabytes on damaged bytes, and
a flipped one would be a wrong number that nobody sees.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from importlib.util import cache_from_source, source_hash
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

FORMAT: Final = 1
"""Counts up where a parser that is given here makes something else of the same text than before."""

DIGEST_BYTES: Final = 8
"""How long the digest is: chance does not meet it."""


class ParsedTexts:
    """Parses texts of a shipped file, or returns what was made of the very same text before.

    That is data of its own each time: dicts, lists, tuples, texts, numbers, truth values and None.
    What holds anything else is parsed each time.
    """

    def __init__(
        self, file: Traversable, texts: Iterable[str], parse: Callable[[str], Any]
    ) -> None:
        """Parse `texts` of a file with `parse`; nothing is read or parsed yet."""
        self._path, self._texts, self._parse = _path(file), frozenset(texts), parse

    def __call__(self, text: str) -> Any:  # noqa: ANN401 - whatever the text says
        """What a text parses to."""
        if text in self._kept:
            return marshal.loads(self._kept[text])
        parsed = self._parse(text)
        with suppress(ValueError):  # it holds what marshal does not know
            self._kept[text] = marshal.dumps(parsed)
            self._write()
        return parsed

    @cached_property
    def _kept(self) -> dict[str, bytes]:
        """What is known of texts, which may be another edition's."""
        try:
            content = self._path.read_bytes() if self._path and self._path.is_file() else b""
        except OSError:  # not readable
            return {}
        digest, content = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return marshal.loads(content) if digest == source_hash(content) else {}

    def _write(self) -> None:
        """Keep what is known of this edition's texts, where that can be."""
        if self._path is None or sys.dont_write_bytecode:
            return
        content = marshal.dumps({text: self._kept[text] for text in self._texts & set(self._kept)})
        unfinished = self._path.with_name(
            f"{self._path.name}-{os.getpid()}-{threading.get_ident()}"
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(source_hash(content) + content)
            unfinished.replace(self._path)  # at once: others read it meanwhile
        except OSError:  # installed where one may not write, or the disk is full
            with suppress(OSError):
                unfinished.unlink()


def _path(file: Traversable) -> Path | None:
    """Where to keep what a file's texts parse to; None where Python keeps no modules."""
    if not isinstance(file, Path) or sys.implementation.cache_tag is None:
        return None
    folder = Path(cache_from_source(file)).parent
    return folder / f"{file.name}.{sys.implementation.cache_tag}.{FORMAT}"
