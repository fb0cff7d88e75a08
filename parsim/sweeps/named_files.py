"""Files that a scenario names beside itself: its numbers are those of their contents too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from parsim.scenario.model import CONFIG

_BETWEEN_VALUES = re.compile(r"[,\[\]{}'\"#\n]|:\s|-\s")


def contents_named(texts: Iterable[str], folders: Iterable[Path]) -> Iterator[str]:
    """Yield hashes of all files that values of some YAML texts name.

    A folder stands for the configuration in it. A comment that names a file does no harm: a case
    that is run again has the same numbers.

    Args:
        texts: a scenario, and what is put into it.
        folders: where names are looked for.
    """
    values = {value.strip() for text in texts for value in _BETWEEN_VALUES.split(text)} - {""}
    paths = {folder / value for folder in folders for value in values}
    for path in sorted({*paths, *(path / CONFIG for path in paths)}):
        try:
            if path.is_file():
                now = path.stat()
                yield _hash(path, now.st_mtime_ns, now.st_size)
        except (OSError, ValueError):  # a value that can be no file's name
            continue


@lru_cache(maxsize=256)
def _hash(path: Path, changed: int, size: int) -> str:
    """The hash of a file as it was when it had been `changed` last."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
