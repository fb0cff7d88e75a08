"""The tables that commands print, as HTML: columns stay columns, lines keep their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def view_html(view: RenderableType) -> str:
    """A view of text and tables, piece by piece; its lines keep their order and their alignment."""
    if isinstance(view, Group):
        return "\n".join(view_html(part) for part in view.renderables)
    if isinstance(view, Table):
        return "\n".join(_table(view))
    text = view.plain if isinstance(view, Text) else str(view)
    return f'<div style="white-space: pre-wrap">{escape(text)}</div>' if text else ""


def _table(table: Table) -> Iterator[str]:
    yield "<table>"
    if table.title:
        yield f'<caption style="text-align: left"><b>{escape(str(table.title))}</b></caption>'
    if any(str(column.header) for column in table.columns):
        yield _row("th", [(str(column.header), column.justify) for column in table.columns])
    columns = [[(str(cell), column.justify) for cell in column.cells] for column in table.columns]
    for cells in zip(*columns, strict=True):
        yield _row("td", cells)
    yield "</table>"
    if table.caption:
        yield f"<div>{escape(str(table.caption))}</div>"


def _row(tag: str, cells: Sequence[tuple[str, str]]) -> str:
    row = (f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>' for text, side in cells)
    return f"<tr>{''.join(row)}</tr>"
