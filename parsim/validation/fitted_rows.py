"""The shipped rows that the catalog's constants were fitted to, by the rules of families.yaml.

Reports mark these rows: their errors say how well a fit went, the others' how far it carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.validation.step.known_models import is_mixture
from parsim.validation.tables import refuse_blind, shipped_tables
from parsim.validation.validate import read_table
from parsim.validation.validated_row import ValidatedRow

RowKey = tuple[str, str, float]
"""Table, row_id and measured seconds: a row of another file of the same name is another row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows of a table that belong together, and which of them a fit may use.

    `where` maps columns to the cell that a row must have. Without `of`, the fit uses every
    `every`-th row in file order. With it, rows are grouped in cells by these columns: every
    `every`-th cell in order of first appearance, and of its rows every `rows`-th. 0 uses none.
    Mixtures of experts are a source's own rows with `mixtures`, and none of them without.
    """

    name: str
    table: str
    every: int
    where: Mapping[str, str] = field(default_factory=dict)
    of: tuple[str, ...] = ()
    rows: int = 1
    mixtures: bool = False

    def has(self, row: Mapping[str, str]) -> bool:
        """Whether a row of the table is one of this source."""
        return all(row.get(column) == cell for column, cell in self.where.items())

    def used(self, rows: list[dict[str, str]]) -> list[bool]:
        """For each row of the source in file order, whether the fit may use it."""
        if not self.every:
            return [False] * len(rows)
        if not self.of:
            return [index % self.every == 0 for index in range(len(rows))]
        numbers: dict[tuple[str, ...], int] = {}
        repeats: dict[tuple[str, ...], int] = {}
        chosen = []
        for row in rows:
            cell = tuple(row[column] for column in self.of)
            number = numbers.setdefault(cell, len(numbers))
            repeat = repeats[cell] = repeats.get(cell, -1) + 1
            chosen.append(number % self.every == 0 and repeat % self.rows == 0)
        return chosen

    def rule(self) -> str:
        """Which rows the fit uses, in words."""
        if not self.every:
            return "none: only tested"
        if not self.of:
            return f"rows 1, {1 + self.every}, {1 + 2 * self.every} ... of the source"
        cells = f"one cell of ({', '.join(self.of)}) in {self.every}"
        return f"{cells}, of its rows one in {self.rows}"


@cache
def family_entries() -> dict[str, dict[str, Any]]:
    """The file of families as it is written: family -> what it is about, constants, sources."""
    from ruamel.yaml import YAML

    text = (files("parsim.validation") / "families.yaml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    return entries


def read_sources(entry: Mapping[str, Any]) -> tuple[Source, ...]:
    """The sources of one family, from its YAML mapping."""
    return tuple(
        Source(name=name, **{**values, "of": tuple(values.get("of", ()))})
        for name, values in entry["sources"].items()
    )


@cache
def family_sources() -> dict[str, tuple[Source, ...]]:
    """The sources that each family of constants is fitted to."""
    return {name: read_sources(entry) for name, entry in family_entries().items()}


def source_rows(source: Source) -> list[dict[str, str]]:
    """Rows of the shipped table that belong to a source, in file order.

    Raises:
        TableError: the source names a blind table.
    """
    refuse_blind([source.table])
    return [row for row in _table(source.table) if source.has(row)]


@cache
def _table(name: str) -> list[dict[str, str]]:
    (path,) = [path for path in shipped_tables() if path.stem == name]
    return read_table(path)


@cache
def fitted_rows() -> dict[RowKey, str]:
    """Every shipped row that some fit uses -> the family that uses it."""
    return {
        (source.table, row["row_id"], float(row["step_time_s"])): family
        for family, sources in family_sources().items()
        for source in sources
        for row in _used(source)
        if row["step_time_s"]
    }


def _used(source: Source) -> Iterable[dict[str, str]]:
    rows = source_rows(source)
    chosen = zip(rows, source.used(rows), strict=True)
    return (row for row, used in chosen if used and is_mixture(row) == source.mixtures)


def is_fitted(row: ValidatedRow) -> bool:
    """Whether a compared row is one that the constants were fitted to."""
    return (row.table, row.row_id, row.measured_step or 0.0) in fitted_rows()


@cache
def cells() -> dict[tuple[str, str], str]:
    """(table, row_id) -> configuration cell, of the shipped tables whose rows repeat few cells."""
    return {
        (source.table, row["row_id"]): ", ".join(f"{name} {row[name]}" for name in source.of)
        for sources in family_sources().values()
        for source in sources
        if source.of
        for row in source_rows(source)
    }
