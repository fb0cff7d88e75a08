"""Which fields a device or a system has, and how each one is read from its node.

An entry is flat here: `intra.bandwidth` is one field. So `from:` is a plain update of one entry by
another, and a field that is written as null takes the parent's away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from parsim.cluster.cables import read_cables
from parsim.cluster.document import Document, Node, is_null, is_text
from parsim.cluster.evidence import RecordedStep, read_spreads, read_steps, read_unmeasured
from parsim.cluster.fields import FIELDS, LIMITS, REMOVED
from parsim.cluster.hardware import (
    Cable,
    Curve,
    Fabric,
    Generation,
    Library,
    Measured,
    NetworkFabric,
    Tiles,
    Tuner,
)
from parsim.cluster.measured.curves import read_curves
from parsim.cluster.measured.residuals import read_residuals
from parsim.errors import ScenarioError, UnitError, alternatives, shown
from parsim.units import count_of, parse_quantity

Said = Mapping[str, float] | Mapping[str, str] | tuple[RecordedStep, ...]
Value = str | bool | int | float | Measured | tuple[Curve, ...] | tuple[Cable, ...] | Said


@dataclass(frozen=True, slots=True)
class Reading:
    """A field's value in SI units and where the number comes from ("" for names and switches)."""

    value: Value
    source: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One device or system as written: its own fields, its parent, and its place for messages.

    A field that maps to None was written as null.
    """

    document: Document
    section: str
    id: str
    node: Node
    parent: str | None
    fields: Mapping[str, Reading | None]
    field_nodes: Mapping[str, Node]

    def error_at(self, field: str, message: str) -> ScenarioError:
        """A ScenarioError at one of the entry's own fields, or at the entry where it has none."""
        node = self.field_nodes.get(field, self.node)
        name = f"{self.section}.{self.id}"
        return self.document.error(node, f"{name}.{field}" if field else name, message)


def read_entry(document: Document, section: str, name: str, key: Node, node: Node) -> Entry:
    """Read one entry's own fields; `from:` is noted and followed later.

    Raises:
        ScenarioError: an unknown field, a value of the wrong kind, or a number without its unit.
    """
    fields: dict[str, Reading | None] = {}
    nodes: dict[str, Node] = {}
    parent = None
    where = f"{section}.{name}"
    for word, word_node, value in document.items(node, where):
        if word == "from":
            if not is_text(value):
                raise document.error(value, f"{where}.from", "must be the id of an entry")
            parent = str(value.value)
            nodes["from"] = value
            continue
        for field, leaf in _leaves(document, section, where, word, word_node, value):
            fields[field] = _read_field(document, section, where, field, leaf)
            nodes[field] = leaf
    return Entry(document, section, name, key, parent, fields, nodes)


def _leaves(
    document: Document, section: str, where: str, word: str, key: Node, node: Node
) -> list[tuple[str, Node]]:
    """The flat fields under one key: itself, or the members of a group (peak_flops, intra, ...)."""
    known = FIELDS[section]
    members = [field for field in known if field.startswith(f"{word}.")]
    if word not in known and not members:
        if word in REMOVED:
            message = f"is no longer a field; write {REMOVED[word]} instead"
            raise document.error(key, f"{where}.{word}", message)
        allowed = ["from", *dict.fromkeys(field.split(".")[0] for field in known)]
        raise document.error(key, f"{where}.{word}", _unknown("field", word, allowed))
    if not members:
        return [(word, node)]
    if is_null(node):
        return [(field, node) for field in members]
    short = [field.removeprefix(f"{word}.") for field in members]
    leaves = []
    for inner, inner_key, value in document.items(node, f"{where}.{word}"):
        if inner not in short:
            message = _unknown("field", inner, short)
            raise document.error(inner_key, f"{where}.{word}.{inner}", message)
        leaves.append((f"{word}.{inner}", value))
    return leaves


def _unknown(noun: str, word: str, allowed: list[str]) -> str:
    return f"unknown {noun} '{shown(word)}'{alternatives(word, allowed)}"


def _read_field(
    document: Document, section: str, where: str, field: str, node: Node
) -> Reading | None:
    kind = FIELDS[section][field]
    if is_null(node):
        return None
    if kind in _LISTS:
        return Reading(_LISTS[kind](document, f"{where}.{field}", node), "")
    source = "" if kind in ("text", "flag", *_WORDS) else document.file
    if node.id == "sequence" and source:
        node, source = _value_and_source(document, f"{where}.{field}", node)
    if node.id != "scalar":
        expected = "one value or [value, source]" if source else "one value"
        raise document.error(node, f"{where}.{field}", f"must be {expected}, not a {node.id}")
    try:
        return Reading(_convert(str(node.value), kind, is_text(node)), source)
    except (ValueError, UnitError) as error:
        raise document.error(node, f"{where}.{field}", str(error)) from None


def _value_and_source(document: Document, field: str, node: Node) -> tuple[Node, str]:
    if len(node.value) != 2 or not is_text(node.value[1]) or not node.value[1].value.strip():
        message = "must be one value or [value, source] with a source that is not empty"
        raise document.error(node, field, message)
    return node.value[0], str(node.value[1].value)


def _convert(text: str, kind: str, quoted: bool) -> Value:
    """Text to the value of a kind, in SI units."""
    if kind in _QUANTITIES:
        return _quantity(text, kind)
    if kind == "text" and not quoted:
        raise ValueError(f"{shown(text)} is not text; write it in quotes: '{shown(text)}'")
    if kind in _WORDS:
        return _word(text, kind)
    if kind == "flag":
        return _flag(text)
    if kind == "count":
        return count_of(text)
    return text if kind == "text" else _number(text, kind)


# Most values occur many times in a catalog (`5us`), and reading a unit takes tens of microseconds.
@lru_cache(maxsize=1024)
def _quantity(text: str, kind: str) -> float:
    value = parse_quantity(text, _QUANTITIES[kind], _EXAMPLES.get(kind))
    limits = LIMITS.get(kind)
    if limits is not None and not limits.allow(value):
        unit = " s" if _QUANTITIES[kind] == "time" else ""
        raise ValueError(f"'{shown(text)}' must be {limits.words(unit)}")
    return value


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{shown(text)}' is no truth value; allowed: true, false")
    return text == "true"


def _word(text: str, kind: str) -> str:
    words = list(_WORDS[kind])
    if text not in words:
        raise ValueError(_unknown(_NOUNS.get(kind, kind), text, words))
    return text


def _number(text: str, kind: str) -> float:
    """A plain number within the limits of its kind."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    limits = LIMITS[kind]
    if not (math.isfinite(value) and limits.allow(value)):
        raise ValueError(f"'{shown(text)}' must be a plain number, {limits.words()}")
    return value


_WORDS: Mapping[str, tuple[str, ...]] = {
    "fabric": get_args(Fabric),
    "network fabric": get_args(NetworkFabric),
    "tiles": get_args(Tiles),
    "generation": get_args(Generation),
    "library": get_args(Library),
    "tuner": get_args(Tuner),
}
_NOUNS = {"tiles": "set of tiles"}
_EXAMPLES = {"interface": "400Gb/s"}
"""What messages show where a kind is sold in other units than its dimension."""
_QUANTITIES = {
    "capacity": "bytes",
    "bytes": "bytes",
    "bandwidth": "bandwidth",
    "interface": "bandwidth",
    "flops": "flops",
    "power": "power",
    "time": "time",
    "latency": "time",
}
_LISTS: Mapping[str, Callable[[Document, str, Node], Value]] = {
    "residuals": read_residuals,
    "curves": read_curves,
    "cables": read_cables,
    "spreads": read_spreads,
    "unmeasured": read_unmeasured,
    "recorded steps": read_steps,
}
