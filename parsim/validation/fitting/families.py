"""The families of constants and sources, read from families.yaml and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.errors import CatalogError
from parsim.validation.fitting.constants import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant with its textbook value, the spread of its logarithm and where they come from."""

    address: Address
    textbook: float
    spread: float
    why: str
    most: float = float("inf")


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
            return [place % self.every == 0 for place in range(len(rows))]
        seen: dict[tuple[str, ...], int] = {}
        order: dict[tuple[str, ...], int] = {}
        chosen = []
        for row in rows:
            cell = tuple(row[column] for column in self.of)
            number = order.setdefault(cell, len(order))
            place = seen[cell] = seen.get(cell, -1) + 1
            chosen.append(number % self.every == 0 and place % self.rows == 0)
        return chosen

    def rule(self) -> str:
        """Which rows the fit uses, in words."""
        if not self.every:
            return "none: only tested"
        if not self.of:
            return f"rows 1, {1 + self.every}, {1 + 2 * self.every} ... of the source"
        return (f"one cell of ({', '.join(self.of)}) in {self.every}, of its rows "
                f"one in {self.rows}")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Constants that are fitted together to sources."""

    name: str
    about: str
    constants: tuple[Constant, ...]
    sources: tuple[Source, ...]


@cache
def families() -> tuple[Family, ...]:
    """All families, in the order in which they are fitted.

    Raises:
        CatalogError: an unknown constant, or one that two families fit.
    """
    from ruamel.yaml import YAML

    text = (files("parsim.validation.fitting") / "families.yaml").read_text(encoding="utf-8")
    document: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    found = tuple(read_family(name, entry) for name, entry in document.items())
    listed = [str(one.address) for family in found for one in family.constants]
    twice = {name for name in listed if listed.count(name) > 1}
    if twice:
        raise CatalogError(f"constants fitted by two families: {', '.join(sorted(twice))}")
    return found


def read_family(name: str, entry: Mapping[str, Any]) -> Family:
    """One family from its YAML mapping."""
    constants = tuple(
        Constant(address=Address.parse(address), **values)
        for address, values in entry["constants"].items()
    )
    sources = tuple(_source(own, values) for own, values in entry["sources"].items())
    return Family(name=name, about=entry["about"], constants=constants, sources=sources)


def _source(name: str, values: Mapping[str, Any]) -> Source:
    return Source(name=name, **{**values, "of": tuple(values.get("of", ()))})
