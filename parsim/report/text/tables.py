"""What all tables for people share: the table itself, numbers as text, and the console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

from parsim.sim.confidence.interval import Interval
from parsim.training_run.estimate import Estimate
from parsim.units import format_seconds

BAR = 28
"""Width of a whole share's bar, characters."""
WHOLE_CELL, NUMBER = 17, 12
"""Cells of up to so many characters, intervals and numbers with their units, stay in one line."""
LEAST_NAME = 16
"""Characters of the first column, a name, below which it is not broken."""
GAP = 2
"""Spaces between columns."""


class WordTable(Table):
    """A table whose lines break between words and not inside them, where the screen is narrow."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it with columns that fit the screen: long texts are broken before numbers are."""
        room = options.max_width - GAP * (len(self.columns) - 1)
        sizes = [_Sizes.of(column, console, options) for column in self.columns]
        widest, floors = [size.most for size in sizes], _floors(sizes)
        least = next((floor for floor in floors if sum(floor) <= room), None)
        widths = [None] * len(sizes) if least is None else _squeezed(widest, least, room)
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Characters of what is in a column."""

    word: int  # the longest word, those of the head among them
    number: int  # the longest cell of up to NUMBER characters, or the longest word
    whole: int  # the longest cell of up to WHOLE_CELL characters, or the longest word
    most: int  # the longest cell

    @classmethod
    def of(cls, column: Column, console: Console, options: ConsoleOptions) -> _Sizes:
        """The sizes of a column's cells and head."""
        head = Measurement.get(console, options, column.header)
        cells = [Measurement.get(console, options, cell) for cell in column.cells]
        word = max((size.minimum for size in (head, *cells)), default=1)
        number, whole = (
            max((size.maximum for size in cells if size.maximum <= limit), default=1)
            for limit in (NUMBER, WHOLE_CELL)
        )
        most = max(size.maximum for size in (head, *cells))
        return cls(word, max(word, number), max(word, whole), most)


def _floors(sizes: Sequence[_Sizes]) -> Iterator[list[int]]:
    """Widths that columns may have at least, from the neatest on.

    Names in one line; names broken between words; names broken anywhere and numbers whole; words.
    """
    name, *others = sizes
    yield [name.most, *(size.whole for size in others)]
    yield [name.word, *(size.whole for size in others)]
    yield [min(name.word, LEAST_NAME), *(size.number for size in others)]
    yield [size.word for size in sizes]


def _squeezed(widest: Sequence[int], least: Sequence[int], room: int) -> list[int | None]:
    """Widths that add up to the room at most: the widest column that can be narrower goes first."""
    widths = list(widest)
    while sum(widths) > room:
        able = [i for i, width in enumerate(widths) if width > least[i]]
        widths[max(able, key=lambda i: widths[i])] -= 1
    return [*widths]


def table(columns: str, *, title: str | None = None, right: Iterable[int] = ()) -> Table:
    """A borderless table with columns `a | b | c`; those numbered in `right` are right-aligned.

    It is at least as wide as its title, which else would break; of long ones, 72 characters.
    """
    empty = WordTable(
        title=title,
        box=None,
        pad_edge=False,
        title_justify="left",
        title_style="bold",
        min_width=min(len(title), 72) if title else None,
    )
    for i, name in enumerate(columns.split(" | ")):
        side: Literal["left", "right"] = "right" if i in set(right) else "left"
        # what has no room for a word goes on in the next line; nothing is cut off
        empty.add_column(name, justify=side, overflow="fold")
    return empty


def head_lines(title: str) -> str:
    """The head of a narrow column in several lines: what stands in brackets below the rest."""
    return title.replace(" (", "\n(").replace(", ", ",\n").replace(": ", ":\n")


def pairs(rows: Iterable[tuple[str, str]], *, title: str | None = None) -> Table:
    """Names and values, without a head."""
    filled = table(" | ", title=title)
    for name, value in rows:
        filled.add_row(name, value)
    return filled


def bar(share: float) -> str:
    """A share as a bar of characters."""
    return "█" * round(BAR * share)


def numbers(ascending: Sequence[int], separator: str = ", ") -> str:
    """Ascending numbers in runs: 0-3, 8."""
    runs: list[list[int]] = []
    for number in ascending:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return separator.join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def between(interval: Interval) -> str:
    """An interval as text: 39.942 to 46.240 s, with the unit once where both ends have the same."""
    low, high = format_seconds(interval.low), format_seconds(interval.high)
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def amount(value: float) -> str:
    """Three figures: 24.5, 613,000, 2.10 M."""
    for factor, suffix in ((1e9, " B"), (1e6, " M"), (1.0, "")):
        scaled = value / factor
        if scaled >= 100.0:
            return f"{float(f'{scaled:.3g}'):,.0f}{suffix}"
        if scaled >= 1.0:
            return f"{scaled:.{1 if scaled >= 10.0 else 2}f}{suffix}"
    return f"{value:.3g}"


def between_estimates(estimate: Estimate) -> str:
    """An estimate as text with both ends: 24.5 (22.1 to 27.0)."""
    low, value, high = (amount(part) for part in estimate)
    return f"{value} ({low} to {high})"


def console(*, stderr: bool = False) -> Console:
    """A console that wraps at the terminal's width, or at 160 columns in a pipe or file.

    Texts of the user's files are printed as they are: `[x]` is no markup, `:x:` no emoji.
    """
    terminal = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if terminal.is_terminal:
        return terminal
    return Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, width=160, no_color=True
    )
