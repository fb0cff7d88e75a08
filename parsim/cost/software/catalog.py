"""The known software stacks, each from its entry in `software.yaml`, on demand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.cost.software.record import Software
from parsim.errors import CatalogError, alternatives, matching, shown
from parsim.files import OnDemand, entries_of
from parsim.plan.names import USUAL, CpCommType

GENERIC = "generic"
"""Name of the software assumed where none is named."""


@cache
def software_catalog() -> Mapping[str, Software]:
    """All known software stacks by id; entries start from the one they name in `from`."""
    entries = entries_of(files("parsim.cost") / "software.yaml")

    def stated(name: str) -> dict[str, Any]:
        keys = dict(entries[name])
        base = keys.pop("from", None)
        return {**(stated(base) if base else {}), **keys}

    return OnDemand(entries, lambda name: _build(name, **stated(name)))


def _build(name: str, description: str, **entry: tuple[Any, str]) -> Software:
    """A stack of (value, reason) by field."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, (value, _) in entry.items()
    }
    values["cp_comm_type"] = CpCommType[values["cp_comm_type"].upper()]
    schedules = values["schedules"]
    values["schedules"] = USUAL if schedules == "all" else schedules
    reasons = {key: reason for key, (_, reason) in entry.items()}
    return Software(id=name, description=description, reasons=reasons, **values)


def software(name: str) -> Software:
    """Look up a stack.

    Raises:
        CatalogError: unknown name.
    """
    catalog = software_catalog()
    known = matching(name, catalog)
    if known is None:
        rest = alternatives(name, sorted(catalog), listing="parsim catalog software")
        raise CatalogError(f"software '{shown(name)}' is unknown{rest}")
    return catalog[known]
