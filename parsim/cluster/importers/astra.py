"""Reads the network yml of ASTRA-sim's analytical backends.

    topology: [ Ring, Switch ]        # or FullyConnected; the first dimension is innermost
    npus_count: [ 8, 4 ]
    bandwidth: [ 300.0, 25.0 ]        # said to be GB/s, in fact 2^30 bytes/s, of one link
    latency: [ 500.0, 2000.0 ]        # ns, of one link

The first dimension becomes the node, the second the network of one interface a device, a third the
spine above it (both Switch), whose rate over the second's is the oversubscription.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parsim.cluster.document import Document, Node, parse_document
from parsim.cluster.hardware import Cable
from parsim.cluster.importers.found import (
    Field,
    Found,
    base_system,
    nvlink_of,
    rate_text,
    time_text,
)
from parsim.cluster.importers.wires import direct
from parsim.errors import CatalogError, did_you_mean

SHAPES = ("Ring", "FullyConnected", "Switch")
GB = 2.0**30
_LISTS = ("topology", "npus_count", "bandwidth", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension: shape, devices, bytes/s of a link, seconds of a link; its node for errors."""

    shape: str
    size: int
    rate: float
    latency: float
    place: Node


def read_astra(text: str, file: str, device: str | None) -> Found:
    """A system of the dimensions.

    Raises:
        ScenarioError: a list missing or of another length, an unknown shape, a number out of range,
            or more dimensions than a system has.
        CatalogError: `device` is not given, or not in the catalog.
    """
    document = parse_document(text, file)
    dimensions = _dimensions(document)
    if device is None:
        raise CatalogError(f"{file}: names no device; say which it is, e.g. --device h100-sxm-80gb")
    base = base_system(nvlink_of(device).base)
    first, *outer = dimensions
    source = f"{Path(file).name}: network of ASTRA-sim, GB = 2^30 bytes"
    rate = first.rate * _links(first)
    fabric = "nvswitch" if first.shape == "Switch" or first.size == 1 else "nvlink-mesh"
    fields: dict[str, Field] = {
        "devices_per_node": (str(first.size), source),
        "call_overhead": ("0us", "ASTRA-sim has none"),
        "call_overhead_per_rank": ("0us", "ASTRA-sim has none"),
        "curves": ("null", ""),
        "intra.fabric": (fabric, ""),
        "intra.bandwidth": (rate_text(rate), f"{source}; all links of a device"),
        "intra.latency": (time_text(first.latency), source),
        "intra.efficiency": ("1.0", "ASTRA-sim's links carry their bandwidth"),
        "intra.nvls": ("false", ""),
    }
    fields |= _network(document, first, outer, source)
    if not base.curves:
        del fields["curves"]
    return Found(
        origin=source,
        base=base.id,
        device=device,
        fields=fields,
        cables=tuple(_cables(first, bool(outer))),
        notes=[f"devices are {device}, as told; ASTRA-sim's file does not name them"],
    )


def _links(one: Dimension) -> int:
    """Links of a device: two neighbours of a ring, all others, or one switch."""
    if one.shape == "Ring":
        return min(2, one.size - 1) or 1
    return max(one.size - 1, 1) if one.shape == "FullyConnected" else 1


def _cables(one: Dimension, network: bool) -> Iterator[Cable]:
    pairs = [(a, b) for a in range(one.size) for b in range(a + 1, one.size)]
    if one.shape == "Ring":
        pairs = [(a, b) for a, b in pairs if b - a in (1, one.size - 1)]
    if one.shape == "Switch" or one.size == 1:
        ends = [(f"gpu:{a}", "nvswitch:0") for a in range(one.size)]
    else:
        ends = [(f"gpu:{a}", f"gpu:{b}") for a, b in pairs]
    for source, target in ends:
        yield Cable(
            source=source,
            target=target,
            link_class="nvlink",
            bandwidth=one.rate,
            latency=one.latency,
        )
    if network:  # interfaces are as near as can be: only their own rate counts
        for place in range(one.size):
            yield direct(f"gpu:{place}", f"nic:{place}", "pcie", one.rate * _links(one))


def _network(
    document: Document, first: Dimension, outer: list[Dimension], source: str
) -> dict[str, Field]:
    if not outer:
        return {"network": ("null", "")}
    second = outer[0]
    fabric = {"Ring": "ring", "Switch": "fat-tree"}.get(second.shape)
    if fabric is None or (len(outer) > 1 and (second.shape, outer[1].shape) != ("Switch",) * 2):
        said = "beyond the first dimension may be Ring, Switch, or Switch, Switch"
        raise document.error(second.place, "topology", said)
    if len(outer) > 2:
        said = f"has {1 + len(outer)} dimensions; allowed: 3 (node, leaf, spine)"
        raise document.error(outer[2].place, "topology", said)
    lanes = _links(second) if fabric == "ring" else 1
    found: dict[str, Field] = {
        "network.nics_per_node": (str(first.size), f"{source}; one for each device"),
        "network.nic_bandwidth": (rate_text(second.rate * lanes), source),
        "network.latency": (time_text(2 * second.latency), f"{source}; up and down"),
        "network.efficiency": ("1.0", "ASTRA-sim's links carry their bandwidth"),
        "network.fabric": (fabric, ""),
        "network.oversubscription": ("1.0", source),
        "network.nodes_per_leaf": (str(second.size), source),
    }
    if len(outer) > 1:
        over = second.rate / outer[1].rate
        found["network.oversubscription"] = (f"{over:.6g}", f"{source}; second over third")
    return found


def _dimensions(document: Document) -> list[Dimension]:
    lists = _lists(document)
    length = len(lists["topology"].value)
    if length == 0:
        raise document.error(lists["topology"], "topology", "is empty; write one dimension")
    for word, node in lists.items():
        if len(node.value) != length:
            said = f"has {len(node.value)} values, topology has {length}; write one per dimension"
            raise document.error(node, word, said)
    return [
        Dimension(
            shape=_shape(document, lists["topology"].value[i]),
            size=int(_number(document, "npus_count", lists["npus_count"].value[i], least=1)),
            rate=_number(document, "bandwidth", lists["bandwidth"].value[i], least=1e-9) * GB,
            latency=_number(document, "latency", lists["latency"].value[i], least=0) * 1e-9,
            place=lists["topology"].value[i],
        )
        for i in range(length)
    ]


def _lists(document: Document) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for word, key, node in document.items(document.root, ""):
        if word not in _LISTS:
            said = f"is unknown{did_you_mean(word, _LISTS)}; allowed: {', '.join(_LISTS)}"
            raise document.error(key, word, said)
        if node.id != "sequence":
            raise document.error(node, word, f"must be a list, not a {node.id}")
        found[word] = node
    if missing := [word for word in _LISTS if word not in found]:
        raise document.error(document.root, "", f"lacks {', '.join(missing)}")
    return found


def _shape(document: Document, node: Node) -> str:
    text = str(node.value)
    if node.id != "scalar" or text not in SHAPES:
        said = f"'{text}' is unknown{did_you_mean(text, SHAPES)}; allowed: {', '.join(SHAPES)}"
        raise document.error(node, "topology", said)
    return text


def _number(document: Document, word: str, node: Node, least: float) -> float:
    try:
        value = float(node.value)
    except (TypeError, ValueError):
        value = math.nan
    whole = word == "npus_count"
    if not least <= value < math.inf or (whole and value != int(value)):
        kind = "a whole number of at least 1" if whole else "a number, above 0 for a bandwidth"
        raise document.error(node, word, f"'{node.value}' must be {kind}")
    return value
