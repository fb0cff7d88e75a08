"""What users hold in their hands: records that print, convert and draw themselves.

The words and pictures are those of the reports, which lie above the records. No layer imports a
higher one, so the front page (`parsim/__init__.py`) says where they are, see `shown_by`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from pandas import DataFrame


class Display(Protocol):
    """What makes words and pictures of results: `parsim.report.display`."""

    def text(self, result: Result, /) -> str:
        """The tables of a result for a terminal."""

    def html(self, result: Result, /) -> str:
        """The tables, or the picture, of a result for a notebook."""

    def figure(self, result: Result, options: Mapping[str, Any], /) -> Figure:
        """The picture of a result."""


class Result(ABC):
    """A record that prints as its command prints it, and converts to plain data and tables."""

    __slots__ = ()

    @property
    @abstractmethod
    def headline(self) -> str:
        """The most important numbers on one line."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names, as `--json` prints it."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows of a table: flat, with units in the names."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data with units in the names, the document of `--json`."""
        return self.to_json()

    def to_pandas(self) -> DataFrame:
        """The `records` as a data frame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError:
            from parsim.errors import InputError  # not above: `import parsim` is to stay small

            raise InputError(
                "to_pandas() needs pandas, which is not installed; allowed without it: to_dict() "
                "and records(); install it with: pip install pandas"
            ) from None
        return pd.DataFrame(self.records())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.headline}>"

    def __str__(self) -> str:
        return _display().text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return _display().html(self)


class WithJson(Protocol):
    """A row that converts to plain data with units in the names."""

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""


class RowsResult(Result):
    """A result that is rows: its table has one record for each, and its picture shows all."""

    __slots__ = ()
    rows: Sequence[WithJson]

    def records(self) -> list[dict[str, Any]]:
        """One record per row: flat, with units in the names."""
        return [row.to_json() for row in self.rows]

    def plot(self, path: Path | None = None) -> Figure:
        """Draw all rows; save the picture where a path is given.

        Raises:
            InputError: the file cannot be written.
        """
        return figure_of(self, path=path)


def figure_of(result: Result, **options: object) -> Figure:
    """The picture of a result that has one, as a matplotlib figure."""
    return _display().figure(result, options)


_load_display: Callable[[], Display] | None = None


def shown_by(load_display: Callable[[], Display]) -> None:
    """Say what makes words and pictures; it is loaded when the first result is shown."""
    global _load_display
    _load_display = load_display


def _display() -> Display:
    if _load_display is None:
        raise RuntimeError("nothing was given to shown_by")
    return _load_display()
