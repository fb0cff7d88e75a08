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

from parsim.cluster.document import Document, Node, is_null, is_text
from parsim.cluster.hardware import Fabric, Measured
from parsim.cluster.plausible import check_plausible
from parsim.cluster.residuals import read_residuals
from parsim.errors import ScenarioError, UnitError, did_you_mean
from parsim.units import parse_quantity

Value = str | bool | int | float | Measured
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")

# field -> kind. "capacity" is a size above 0, "count" an integer of 1 or more, "share" a number
# above 0 (it may pass 1: some parts boost above the clock their peak is quoted at), "amount" a
# number of 0 or more.
DEVICE_FIELDS: Mapping[str, str] = {
    "name": "text",
    "memory": "capacity",
    "memory_bandwidth": "bandwidth",
    **{f"peak_flops.{precision}": "flops" for precision in PRECISIONS},
    "sm_count": "count",
    "gemm_efficiency": "share",
    "gemm_k_half": "amount",
    "gemm_wave_loss": "amount",
    "memory_efficiency": "share",
    "attention_forward_efficiency": "share",
    "attention_backward_efficiency": "share",
    "kernel_latency": "time",
    "launch_factor": "amount",
    "context_memory": "bytes",
    "residuals": "residuals",
    "calibrated": "flag",
}
SYSTEM_FIELDS: Mapping[str, str] = {
    "name": "text",
    "device": "text",
    "devices_per_node": "count",
    "intra.fabric": "fabric",
    "intra.bandwidth": "bandwidth",
    "intra.latency": "time",
    "intra.efficiency": "share",
    "intra.nvls": "flag",
    "network.nics_per_node": "count",
    "network.nic_bandwidth": "bandwidth",
    "network.latency": "time",
    "network.efficiency": "share",
    "network.oversubscription": "share",
    "network.nodes_per_leaf": "count",
    "call_overhead": "time",
    "call_overhead_per_rank": "time",
    "straggler": "amount",
    "interference": "amount",
    "residuals": "residuals",
    "calibrated": "flag",
}
FIELDS: Mapping[str, Mapping[str, str]] = {"devices": DEVICE_FIELDS, "systems": SYSTEM_FIELDS}


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
    places: Mapping[str, Node]

    def error_at(self, field: str, message: str) -> ScenarioError:
        """A ScenarioError at one of the entry's own fields, or at the entry where it has none."""
        node = self.places.get(field, self.node)
        name = f"{self.section}.{self.id}"
        return self.document.error(node, f"{name}.{field}" if field else name, message)


def read_entry(document: Document, section: str, name: str, key: Node, node: Node) -> Entry:
    """Read one entry's own fields; `from:` is noted and followed later.

    Raises:
        ScenarioError: an unknown field, a value of the wrong kind, or a number without its unit.
    """
    fields: dict[str, Reading | None] = {}
    places: dict[str, Node] = {}
    parent = None
    where = f"{section}.{name}"
    for word, word_node, value in document.items(node, where):
        if word == "from":
            if not is_text(value):
                raise document.error(value, f"{where}.from", "must be the id of an entry")
            parent = str(value.value)
            places["from"] = value
            continue
        for field, leaf in _leaves(document, section, where, word, word_node, value):
            fields[field] = _read_field(document, section, where, field, leaf)
            places[field] = leaf
    return Entry(document, section, name, key, parent, fields, places)


def _leaves(
    document: Document, section: str, where: str, word: str, key: Node, node: Node
) -> list[tuple[str, Node]]:
    """The flat fields under one key: itself, or the members of peak_flops, intra, network."""
    known = FIELDS[section]
    members = [field for field in known if field.startswith(f"{word}.")]
    if word not in known and not members:
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
    return f"unknown {noun} '{word}'{did_you_mean(word, allowed)}; allowed: {', '.join(allowed)}"


def _read_field(
    document: Document, section: str, where: str, field: str, node: Node
) -> Reading | None:
    kind = FIELDS[section][field]
    if is_null(node):
        return None
    if kind == "residuals":
        return Reading(read_residuals(document, f"{where}.{field}", node), "")
    source = "" if kind in ("text", "flag", "fabric") else document.file
    if node.id == "sequence" and source:
        node, source = _value_and_source(document, f"{where}.{field}", node)
    if node.id != "scalar":
        expected = "one value or [value, source]" if source else "one value"
        raise document.error(node, f"{where}.{field}", f"must be {expected}, not a {node.id}")
    try:
        value = _convert(str(node.value), kind, is_text(node))
        check_plausible(field, value)
        return Reading(value, source)
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
        raise ValueError(f"{text} is not text; write it in quotes: '{text}'")
    return _PLAIN[kind](text)


# Most values occur many times in a catalog (`5us`), and reading a unit takes tens of microseconds.
@lru_cache(maxsize=1024)
def _quantity(text: str, kind: str) -> float:
    value = parse_quantity(text, _QUANTITIES[kind])
    if value <= 0 and kind in ("capacity", "bandwidth", "flops"):
        raise ValueError(f"'{text}' must be above 0")
    return value


def _text(text: str) -> str:
    return text


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{text}' is no truth value; allowed: true, false")
    return text == "true"


def _fabric(text: str) -> str:
    fabrics = list(get_args(Fabric))
    if text not in fabrics:
        raise ValueError(_unknown("fabric", text, fabrics))
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"'{text}' must be a whole number of at least 1")
    return int(text)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"'{text}' must be a plain number of at least 0")
    return value


def _share(text: str) -> float:
    value = _amount(text)
    if value == 0:
        raise ValueError(f"'{text}' must be above 0")
    return value


_QUANTITIES = {
    "capacity": "bytes",
    "bytes": "bytes",
    "bandwidth": "bandwidth",
    "flops": "flops",
    "time": "time",
}
_PLAIN: Mapping[str, Callable[[str], Value]] = {
    "text": _text,
    "flag": _flag,
    "fabric": _fabric,
    "count": _count,
    "amount": _amount,
    "share": _share,
}
