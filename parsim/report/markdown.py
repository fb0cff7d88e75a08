"""Tables in Markdown, for pages and reports: names of columns and cells come in, lines leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def markdown_table(
    columns: str | Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    words: Iterable[int] = (0,),
) -> Iterator[str]:
    """The lines of a table, its head first.

    Args:
        columns: names of the columns, or all of them in one text with bars between.
        rows: the cells of each row, which are written as they print.
        words: positions of columns of words, which begin at the left; numbers end at the right.
    """
    names = columns.split(" | ") if isinstance(columns, str) else columns
    left = set(words)
    yield _line(names)
    yield f"|{'|'.join('---' if at in left else '--:' for at in range(len(names)))}|"
    yield from map(_line, rows)


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def cell(text: str) -> str:
    """Text of a user's table as one cell: no bar ends it, no line end breaks it."""
    return " ".join(text.split()).replace("|", "\\|")
