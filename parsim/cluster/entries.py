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
from parsim.cluster.curves import read_curves
from parsim.cluster.document import Document, Node, is_null, is_text
from parsim.cluster.evidence import RecordedStep, read_spreads, read_steps, read_unmeasured
from parsim.cluster.hardware import (
    CONVOLUTION,
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
from parsim.cluster.plausible import check_plausible
from parsim.cluster.residuals import read_residuals
from parsim.errors import ScenarioError, UnitError, shown
from parsim.names import alternatives
from parsim.units import parse_quantity

Said = Mapping[str, float] | Mapping[str, str] | tuple[RecordedStep, ...]
Value = str | bool | int | float | Measured | tuple[Curve, ...] | tuple[Cable, ...] | Said
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
MOST = 1.3
"""An efficiency beyond this is a mistake: of the peak, of the bandwidth or in the measurement."""
REMOVED = {"gemm_wave_loss": "gemm_wave_quantisation (0 to 1, see parsim/cost/kernel/gemm.py)"}
"""Fields of older files, and what stands for them."""

# field -> kind. "capacity" is a size above 0, "count" an integer of 1 or more, "share" a number
# above 0, "efficiency" a share of at most MOST (some parts boost above the clock their peak is
# quoted at), "part" a number from 0 to 1, "drop" a factor of 1 or more, "amount" 0 or more.
DEVICE_FIELDS: Mapping[str, str] = {
    "name": "text",
    "memory": "capacity",
    "memory_bandwidth": "bandwidth",
    **{f"peak_flops.{precision}": "flops" for precision in PRECISIONS},
    "sm_count": "count",
    "gemm_tiles": "tiles",
    "gemm_efficiency": "efficiency",
    "gemm_k_half": "amount",
    "gemm_latency": "time",
    "gemm_wave_quantisation": "part",
    "gemm_cache_bandwidth": "bandwidth",
    "gemm_memory_efficiency": "efficiency",
    "gemm_split_latency": "time",
    "gemm_unaligned": "share",
    "gemm_odd": "share",
    "gemm_accumulate_factor": "share",
    "gemm_clock_drop": "drop",
    "gemm_boost_time": "time",
    "gemm_sustained": "efficiency",
    "memory_efficiency": "efficiency",
    "attention_forward_efficiency": "efficiency",
    "attention_forward_wide": "efficiency",
    "attention_forward_latency": "time",
    "attention_forward_floor": "time",
    "attention_backward_efficiency": "efficiency",
    "attention_backward_wide": "efficiency",
    "attention_backward_latency": "time",
    "attention_backward_floor": "time",
    "attention_sustained": "efficiency",
    "grouped_gemm_efficiency": "efficiency",
    "grouped_weight_efficiency": "efficiency",
    "grouped_gemm_latency": "time",
    "grouped_gemm_floor": "time",
    "kernel_latency": "time",
    "fp8_efficiency": "share",
    "launch_factor": "amount",
    **{f"convolution.{name}": "share" for name in CONVOLUTION},
    "context_memory": "bytes",
    "power": "power",
    "server_factor": "drop",
    "residuals": "residuals",
    "spreads": "spreads",
    "unmeasured": "unmeasured",
    "steps": "recorded steps",
    "calibrated": "flag",
}
SYSTEM_FIELDS: Mapping[str, str] = {
    "name": "text",
    "device": "text",
    "devices_per_node": "count",
    "devices_per_host": "count",
    "host_bandwidth": "bandwidth",
    "host_memory": "bytes",
    "intra.fabric": "fabric",
    "intra.bandwidth": "bandwidth",
    "intra.latency": "time",
    "intra.efficiency": "share",
    "intra.nvls": "flag",
    "intra.generation": "generation",
    "intra.c2c_bandwidth": "bandwidth",
    "network.nics_per_node": "count",
    "network.nic_bandwidth": "bandwidth",
    "network.latency": "time",
    "network.efficiency": "share",
    "network.oversubscription": "share",
    "network.nodes_per_leaf": "count",
    "network.sharp": "flag",
    "network.fabric": "network fabric",
    "network.rails": "count",
    "network.spines": "count",
    "call_overhead": "time",
    "call_overhead_per_rank": "time",
    "straggler_spread": "amount",
    "channels": "count",
    "interference": "amount",
    "library": "library",
    "tuner": "tuner",
    "curves": "curves",
    "topology": "cables",
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
        raise ValueError(f"{shown(text)} is not text; write it in quotes: '{shown(text)}'")
    if kind in _WORDS:
        return _word(text, kind)
    if kind == "flag":
        return _flag(text)
    if kind == "count":
        return _count(text)
    return text if kind == "text" else _number(text, kind)


# Most values occur many times in a catalog (`5us`), and reading a unit takes tens of microseconds.
@lru_cache(maxsize=1024)
def _quantity(text: str, kind: str) -> float:
    value = parse_quantity(text, _QUANTITIES[kind])
    if value <= 0 and kind in ("capacity", "bandwidth", "flops", "power"):
        raise ValueError(f"'{shown(text)}' must be above 0")
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


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"'{shown(text)}' must be a whole number of at least 1")
    return int(text)


def _number(text: str, kind: str) -> float:
    """A plain number within the bounds of its kind."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"'{shown(text)}' must be a plain number of at least 0")
    if kind in ("share", "efficiency") and value == 0:
        raise ValueError(f"'{shown(text)}' must be above 0")
    if kind == "efficiency" and value > MOST:
        raise ValueError(
            f"'{shown(text)}' is above {MOST}, which no kernel reaches; check the peak"
        )
    if kind == "part" and value > 1.0:
        raise ValueError(f"'{shown(text)}' must be a number from 0 to 1")
    if kind == "drop" and value < 1.0:
        raise ValueError(f"'{shown(text)}' must be a factor of at least 1")
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
_QUANTITIES = {
    "capacity": "bytes",
    "bytes": "bytes",
    "bandwidth": "bandwidth",
    "flops": "flops",
    "power": "power",
    "time": "time",
}
_LISTS: Mapping[str, Callable[[Document, str, Node], Value]] = {
    "residuals": read_residuals,
    "curves": read_curves,
    "cables": read_cables,
    "spreads": read_spreads,
    "unmeasured": read_unmeasured,
    "recorded steps": read_steps,
}
