"""The catalog of known models (catalog/models.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.errors import CatalogError, alternatives, matching, shown
from parsim.files import OnDemand, entries_of
from parsim.model.config.families import FAMILY_FLAGS, unlike_note
from parsim.model.config.usual_sizes import usual_sizes
from parsim.model.graph.record import Graph
from parsim.model.model import Model
from parsim.model.transformer import TransformerSpec, build_transformer

Description = TransformerSpec | Graph
"""What a model is built from: the sizes of a transformer, or a graph of operations."""


def build_model(description: Description) -> Model:
    """The model of a description, whose parameter count is exact."""
    if isinstance(description, Graph):
        from parsim.model.graph.build import build_graph  # no transformer needs its operations

        return build_graph(description)
    return build_transformer(description)


@cache
def load_model_catalog() -> Mapping[str, TransformerSpec]:
    """Return every model of the catalog by name, in the order of the file."""
    entries = _entries()
    return OnDemand(entries, lambda name: _spec(name, entries[name]))


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    return entries_of(files("parsim.model") / "catalog" / "models.yaml")


def catalog_note(name: str) -> str:
    """What a model of the catalog computes otherwise than its spec says; empty where nothing."""
    known = matching(name, _entries())
    return unlike_note(_entries()[known]["family"]) if known else ""


def model_spec(name: str) -> TransformerSpec:
    """Return the catalog's spec called `name`.

    Raises:
        CatalogError: there is none; the message lists those that there are.
    """
    catalog = load_model_catalog()
    known = matching(name, catalog)
    if known is None:
        from parsim.model.graph.catalog import NETWORKS

        names = (*catalog, *NETWORKS)
        rest = alternatives(name, names, label="known", listing="parsim catalog models")
        hub = "; nothing is downloaded: name a model's config.json" if "/" in name else ""
        raise CatalogError(f"model '{shown(name)}' is not in the catalog{rest}{hub}")
    return catalog[known]


def _spec(name: str, entry: Mapping[str, Any]) -> TransformerSpec:
    """Fill in what the entry leaves out, as the head of the catalog file states."""
    flags = FAMILY_FLAGS[entry["family"]]
    given = {key: value for key, value in entry.items() if key not in ("family", "source")}
    derived = usual_sizes(entry["family"], entry)
    return TransformerSpec(name=name, **{**derived, **flags, **given})
