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
from parsim.cluster.importers.imported import (
    Field,
    ImportedSystem,
    base_system,
    nvlink_of,
    unnamed,
)
from parsim.errors import did_you_mean, shown
from parsim.units import written_rate, written_time

SHAPES = ("Ring", "FullyConnected", "Switch")
GB = 2.0**30
MOST_NPUS = 1024
"""Devices of a dimension; the largest domains of NVLink have 576."""
MOST_LINK = 1e9
"""GB/s or ns that a link may have."""
_LISTS = ("topology", "npus_count", "bandwidth", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension: shape, devices, bytes/s of a link, seconds of a link; its node for errors."""

    shape: str
    size: int
    rate: float
    latency: float
    node: Node


def read_astra(text: str, file: str, device: str | None) -> ImportedSystem:
    """A system of the dimensions.

    Raises:
        ScenarioError: a list missing or of another length, an unknown shape, a number out of range,
            or more dimensions than a system has.
        CatalogError: `device` is not given, or not in the catalog.
    """
    document = parse_document(text, file)
    first, *outer = _dimensions(document)
    if device is None:
        raise unnamed(file)
    base = base_system(nvlink_of(device).base)
    source = f"{Path(file).name}: network of ASTRA-sim, GB = 2^30 bytes"
    curves: dict[str, Field] = {"curves": ("null", "")} if base.curves else {}
    return ImportedSystem(
        origin=source,
        base=base.id,
        device=device,
        fields={**_node(first, source, curves), **_network(document, first, outer, source)},
        cables=tuple(_cables(first, bool(outer))),
        notes=[f"devices are {device}, as told; ASTRA-sim's file does not name them"],
    )


def _node(first: Dimension, source: str, curves: dict[str, Field]) -> dict[str, Field]:
    """The fields of a node; its `curves` are those of the base, where that has any to take back."""
    rate = first.rate * _links(first)
    fabric = "nvswitch" if first.shape == "Switch" or first.size == 1 else "nvlink-mesh"
    return {
        "devices_per_node": (str(first.size), source),
        "call_overhead": ("0us", "ASTRA-sim has none"),
        "call_overhead_per_rank": ("0us", "ASTRA-sim has none"),
        **curves,
        "intra.fabric": (fabric, ""),
        "intra.bandwidth": (written_rate(rate), f"{source}; all links of a device"),
        "intra.latency": (written_time(first.latency), source),
        "intra.efficiency": ("1.0", "ASTRA-sim's links carry their bandwidth"),
        "intra.nvls": ("false", ""),
    }


def _links(dimension: Dimension) -> int:
    """Links of a device: two neighbours of a ring, all others, or one switch."""
    if dimension.shape == "Ring":
        return min(2, dimension.size - 1) or 1
    return max(dimension.size - 1, 1) if dimension.shape == "FullyConnected" else 1


def _cables(dimension: Dimension, network: bool) -> Iterator[Cable]:
    pairs = [(a, b) for a in range(dimension.size) for b in range(a + 1, dimension.size)]
    if dimension.shape == "Ring":
        pairs = [(a, b) for a, b in pairs if b - a in (1, dimension.size - 1)]
    if dimension.shape == "Switch" or dimension.size == 1:
        ends = [(f"gpu:{a}", "nvswitch:0") for a in range(dimension.size)]
    else:
        ends = [(f"gpu:{a}", f"gpu:{b}") for a, b in pairs]
    for source, target in ends:
        yield Cable(source, target, "nvlink", dimension.rate, latency=dimension.latency)
    if network:  # interfaces are as near as can be: only their own rate counts
        for index in range(dimension.size):
            yield Cable(f"gpu:{index}", f"nic:{index}", "pcie", dimension.rate * _links(dimension))


def _network(
    document: Document, first: Dimension, outer: list[Dimension], source: str
) -> dict[str, Field]:
    """The fields of the network that the dimensions beyond a node make."""
    if not outer:
        return {"network": ("null", "")}
    second, fabric = outer[0], _fabric(document, outer)
    lanes = _links(second) if fabric == "ring" else 1
    fields: dict[str, Field] = {
        "network.nics_per_node": (str(first.size), f"{source}; one for each device"),
        "network.nic_bandwidth": (written_rate(second.rate * lanes), source),
        "network.latency": (written_time(2 * second.latency), f"{source}; up and down"),
        "network.efficiency": ("1.0", "ASTRA-sim's links carry their bandwidth"),
        "network.fabric": (fabric, ""),
        "network.oversubscription": ("1.0", source),
        "network.nodes_per_leaf": (str(second.size), source),
    }
    if len(outer) > 1:
        over = max(second.rate / outer[1].rate, 1.0)  # a faster spine waits for the leaves
        fields["network.oversubscription"] = (f"{over:.6g}", f"{source}; second over third")
    return fields


def _fabric(document: Document, outer: list[Dimension]) -> str:
    """A ring of nodes, or switches of one or two levels.

    Raises:
        ScenarioError: any other shape.
    """
    shapes = [dimension.shape for dimension in outer]
    fabric = {"Ring": "ring", "Switch": "fat-tree"}.get(shapes[0])
    if fabric is None or (len(outer) > 1 and shapes[:2] != ["Switch", "Switch"]):
        message = "beyond the first dimension may be Ring, Switch, or Switch, Switch"
        raise document.error(outer[0].node, "topology", message)
    if len(outer) > 2:
        message = f"has {1 + len(outer)} dimensions; allowed: 3 (node, leaf, spine)"
        raise document.error(outer[2].node, "topology", message)
    return fabric


def _dimensions(document: Document) -> list[Dimension]:
    """The dimensions of the network, of which every list has one value."""
    lists = _lists(document)
    length = len(lists["topology"].value)
    if length == 0:
        raise document.error(lists["topology"], "topology", "is empty; write one dimension")
    for word, node in lists.items():
        if len(node.value) != length:
            message = (
                f"has {len(node.value)} values, topology has {length}; write one per dimension"
            )
            raise document.error(node, word, message)
    return [
        Dimension(
            shape=_shape(document, shape),
            size=int(_number(document, "npus_count", size, least=1)),
            rate=_number(document, "bandwidth", rate, least=1e-9) * GB,
            latency=_number(document, "latency", latency, least=0) * 1e-9,
            node=shape,
        )
        for shape, size, rate, latency in zip(*(lists[word].value for word in _LISTS), strict=True)
    ]


def _lists(document: Document) -> dict[str, Node]:
    lists: dict[str, Node] = {}
    for word, key, node in document.items(document.root, ""):
        if word not in _LISTS:
            message = f"is unknown{did_you_mean(word, _LISTS)}; allowed: {', '.join(_LISTS)}"
            raise document.error(key, word, message)
        if node.id != "sequence":
            raise document.error(node, word, f"must be a list, not a {node.id}")
        lists[word] = node
    if missing := [word for word in _LISTS if word not in lists]:
        raise document.error(document.root, "", f"lacks {', '.join(missing)}")
    return lists


def _shape(document: Document, node: Node) -> str:
    text = str(node.value)
    if node.id != "scalar" or text not in SHAPES:
        message = (
            f"'{shown(text)}' is unknown{did_you_mean(text, SHAPES)}; allowed: {', '.join(SHAPES)}"
        )
        raise document.error(node, "topology", message)
    return text


def _number(document: Document, word: str, node: Node, least: float) -> float:
    try:
        value = float(node.value)
    except (TypeError, ValueError):
        value = math.nan
    whole = word == "npus_count"
    if not least <= value <= (MOST_NPUS if whole else MOST_LINK) or (whole and value != int(value)):
        most = f"a number of at most {MOST_LINK:g}, above 0 for a bandwidth"
        kind = f"a whole number from 1 to {MOST_NPUS}" if whole else most
        raise document.error(node, word, f"'{shown(node.value)}' must be {kind}")
    return value
