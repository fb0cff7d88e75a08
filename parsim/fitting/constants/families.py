"""The families of constants that are fitted together, read from families.yaml and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from parsim.errors import CatalogError
from parsim.fitting.constants.address import Address
from parsim.validation.fitted_rows import Source, family_entries, read_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant with its textbook value, the spread of its logarithm and where they come from."""

    address: Address
    textbook: float
    spread: float
    why: str
    most: float = float("inf")


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
    read = tuple(read_family(name, entry) for name, entry in family_entries().items())
    listed = [str(constant.address) for family in read for constant in family.constants]
    twice = {name for name in listed if listed.count(name) > 1}
    if twice:
        raise CatalogError(f"constants fitted by two families: {', '.join(sorted(twice))}")
    return read


def read_family(name: str, entry: Mapping[str, Any]) -> Family:
    """One family from its YAML mapping."""
    constants = tuple(
        Constant(address=Address.parse(address), **values)
        for address, values in entry["constants"].items()
    )
    return Family(name=name, about=entry["about"], constants=constants, sources=read_sources(entry))
