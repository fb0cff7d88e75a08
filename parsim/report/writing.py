"""Result files: paths that cannot be written are told before the work, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parsim.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of an output file; say what is wrong where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: cannot write: {path.parent} is not a folder") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot write: {reason.strerror}") from None


def check_writable(path: Path) -> None:
    """Fail before the work, not after it, where a file cannot be written."""
    with writing(path):
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


def check_other(path: Path, source: Path) -> None:
    """Refuse to write over the file that is read."""
    if path.resolve() == source.resolve():
        raise InputError(f"{path}: would overwrite the input; give another file")
