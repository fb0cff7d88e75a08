"""Reads the cables of a node that a catalog file writes out, where no fabric describes them.

topology:
  - {from: gpu:0, to: nvswitch:0, class: nvlink, bandwidth: 300GB/s, latency: 1.7us}
  - {from: gpu:0, to: pcie:0, class: pcie, bandwidth: 31.5GB/s, efficiency: 0.76}

A cable is full duplex, its bandwidth that of one direction. `latency` (0) and `efficiency` (1, the
share that NCCL reaches) may be left out, `source` says where the figures are from. Parts are
kind:index; gpu:0 up to devices_per_node - 1 are the devices, nic:0, ... what the network is
plugged into.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from parsim.cluster.document import Document, Node
from parsim.cluster.hardware import Cable, LinkClass
from parsim.errors import did_you_mean, shown
from parsim.units import parse_quantity

KINDS = ("gpu", "nvswitch", "pcie", "host", "nic", "memory", "switch")
"""Kinds of parts within a node; leaf, spine and router are those between nodes."""
CLASSES = tuple(name for name in get_args(LinkClass) if name != "storage")
"""Classes within a node and between nodes; storage is a scenario's."""
_PART = re.compile(r"([a-z]+):(\d{1,6})", re.ASCII)
_NEEDED = ("from", "to", "class", "bandwidth")
_KNOWN = (*_NEEDED, "latency", "efficiency", "source")


def read_cables(document: Document, where: str, node: Node) -> tuple[Cable, ...]:
    """The cables of one system's node.

    Raises:
        ScenarioError: no list of mappings, an unknown field, part or link class, a rate of 0 or
            less, a cable from a part to itself, two cables between the same parts, or parts that
            no cables join.
    """
    if node.id != "sequence" or not node.value:
        message = "must be a list of cables, {from: gpu:0, to: nvswitch:0, class: nvlink, ...}"
        raise document.error(node, where, message)
    first: dict[frozenset[str], Node] = {}
    cables = []
    for entry in node.value:
        cable = _cable(document, where, entry)
        ends = frozenset((cable.source, cable.target))
        if ends in first:
            line = first[ends].start_mark.line + 1
            message = (
                f"joins {cable.source} and {cable.target} again; first on line {line}; write one "
                f"cable with the sum of their rates"
            )
            raise document.error(entry, where, message)
        first[ends] = entry
        cables.append(cable)
    if apart := parts_apart(cables):
        message = f"is disconnected: no cables lead from {cables[0].source} to {apart[0]}"
        raise document.error(node, where, message)
    return tuple(cables)


def parts_apart(cables: Sequence[Cable]) -> list[str]:
    """Parts that no cables join to the first one's."""
    group = {end: end for cable in cables for end in (cable.source, cable.target)}

    def root(part: str) -> str:
        while group[part] != part:
            group[part] = part = group[group[part]]
        return part

    for cable in cables:
        group[root(cable.source)] = root(cable.target)
    return [part for part in group if root(part) != root(cables[0].source)]


def missing_devices(cables: Sequence[Cable], devices: int) -> tuple[list[str], list[str]]:
    """Devices without a cable, and devices that the node does not have."""
    ends = [
        end for cable in cables for end in (cable.source, cable.target) if end.startswith("gpu:")
    ]
    named = dict.fromkeys(ends)
    wanted = [f"gpu:{index}" for index in range(devices)]
    without = [device for device in wanted if device not in named]
    return without, [device for device in named if device not in wanted]


def _cable(document: Document, where: str, node: Node) -> Cable:
    values = document.values(node, where, _KNOWN, _value)
    if missing := [word for word in _NEEDED if word not in values]:
        raise document.error(node, where, f"has a cable without {', '.join(missing)}")
    if values["from"] == values["to"]:
        raise document.error(node, where, f"has a cable from {values['from']} to itself")
    return Cable(
        values["from"],
        values["to"],
        values["class"],
        values["bandwidth"],
        latency=values.get("latency", 0.0),
        efficiency=values.get("efficiency", 1.0),
    )


def _value(word: str, text: str) -> str | float:
    if word in ("from", "to"):
        return _part(text)
    if word == "class":
        if text not in CLASSES:
            hint = did_you_mean(text, CLASSES)
            raise ValueError(
                f"unknown link class '{shown(text)}'{hint}; allowed: {', '.join(CLASSES)}"
            )
        return text
    if word == "efficiency":
        return _share(text)
    if word == "source":
        return text
    value = parse_quantity(text, "bandwidth" if word == "bandwidth" else "time")
    if word == "bandwidth" and value <= 0:
        raise ValueError(f"'{shown(text)}' must be above 0")
    return value


def _part(text: str) -> str:
    match = _PART.fullmatch(text)
    if match is None or match[1] not in KINDS:
        kinds = ", ".join(KINDS)
        raise ValueError(
            f"'{shown(text)}' is no part; write KIND:INDEX, e.g. gpu:0; kinds: {kinds}"
        )
    return f"{match[1]}:{int(match[2])}"


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise ValueError(f"'{shown(text)}' must be a share above 0 and at most 1")
    return value
