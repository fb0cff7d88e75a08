"""Result files: paths that cannot be written are told before the work; and pages' blocks."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
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


def check_folder(path: Path) -> None:
    """Make a folder, or fail before the work where it cannot be one."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; give a folder")
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that has its old or its new content, whenever the writing is cut short."""
    part = path.with_name(f"{path.name}.part")
    with writing(path):
        part.write_bytes(data)
        part.replace(path)


def check_other(path: Path, *sources: Path) -> None:
    """Refuse to write over a file that is read."""
    if path.resolve() in [source.resolve() for source in sources]:
        raise InputError(f"{path}: would overwrite the input; give another file")


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV, of which a spreadsheet runs none.

    Spreadsheets take a cell that begins with = + - @ (or with a tab or a line's end before it) for
    a formula; such text gets an apostrophe in front, numbers stay (OWASP, CSV injection).
    """
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_harmless(cell) for cell in row] for row in rows
    )
    return text.getvalue()


def _harmless(cell: str) -> str:
    """The cell, which is not a formula."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def fill_pages(pages: Iterable[Path], bodies: Mapping[str, str]) -> None:
    """Write each block anew, in whichever of the pages has it.

    A block stands between `<!-- NAME:begin ... -->` and `<!-- NAME:end -->`.

    Args:
        pages: Files that may have blocks.
        bodies: What each block is to hold, by the block's name.

    Raises:
        InputError: none of the pages has the marks of a block; no page is written then.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for name, body in bodies.items():
        holding = [page for page, text in texts.items() if _marks(name).search(text)]
        if not holding:
            raise InputError(
                f"no block <!-- {name}:begin --> ... <!-- {name}:end --> in "
                f"{', '.join(map(str, texts)) or 'no page'}; add the marks where it belongs"
            )
        texts |= {page: fill(texts[page], name, body) for page in holding}
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")


def fill(text: str, name: str, body: str) -> str:
    """Replace the body of one block; a text without the block stays as it is."""
    return _marks(name).sub(lambda block: f"{block[1]}{body}\n{block[2]}", text)


def _marks(name: str) -> re.Pattern[str]:
    """A block with its two marks as groups."""
    return re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)", re.DOTALL)
