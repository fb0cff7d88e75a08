"""Generated blocks of a page that is written by hand otherwise.

A block stands between `<!-- NAME:begin ... -->` and `<!-- NAME:end -->`.
"""

from __future__ import annotations

import re

from parsim.errors import InputError


def fill(text: str, name: str, body: str) -> str:
    """Replace the body of one block.

    Raises:
        InputError: the block's marks are missing.
    """
    pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if not pattern.search(text):
        raise InputError(f"no block <!-- {name}:begin --> ... <!-- {name}:end -->")
    return pattern.sub(lambda block: f"{block[1]}{body}\n{block[2]}", text)
