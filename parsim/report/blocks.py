"""Generated blocks of a page that is written by hand otherwise.

A block stands between `<!-- NAME:begin ... -->` and `<!-- NAME:end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from parsim.errors import InputError


def fill_pages(pages: Iterable[Path], bodies: Mapping[str, str]) -> None:
    """Write each block anew, in whichever of the pages has it.

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
