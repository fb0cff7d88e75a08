"""From the fields of a catalog's entry, inherited ones among them, to its device or system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from parsim.cluster.cables import missing_devices
from parsim.cluster.entries import Entry, Reading
from parsim.cluster.fields import DEVICE_FIELDS, PRECISIONS, SYSTEM_FIELDS
from parsim.cluster.hardware import Curve, Device, IntraNode, Network, System
from parsim.errors import alternatives, matching, shown

NOUNS = {"devices": "device", "systems": "system"}
_RECORDS = ((Device, ""), (System, ""), (IntraNode, "intra."), (Network, "network."))
_OPTIONAL = {"name"} | {
    head + known.name
    for record, head in _RECORDS
    for known in fields(record)
    if known.default is not MISSING or known.default_factory is not MISSING
}

Fields = dict[str, Reading]


def build_device(entry: Entry, fields: Fields) -> Device:
    """Make the record of a device.

    Raises:
        ScenarioError: a field is missing.
    """
    _require(entry, fields, [name for name in DEVICE_FIELDS if "." not in name])
    peaks = _members(fields, "peak_flops")
    if not peaks:
        raise entry.error_at("", f"lacks peak_flops; give at least one of {', '.join(PRECISIONS)}")
    values = _own_values(entry, fields)
    return Device(
        id=entry.id,
        peak_flops=peaks,
        convolution=_members(fields, "convolution"),
        quantized_attention=_members(fields, "quantized_attention"),
        sources=_sources(fields),
        **values,
    )


def build_system(entry: Entry, fields: Fields, devices: Mapping[str, Device]) -> System:
    """Make the record of a system, with one of these devices in it.

    Raises:
        ScenarioError: a field is missing, its device is unknown, or its topology or hosts do not
            hold the devices of its node.
    """
    network = _members(fields, "network")
    required = [name for name in SYSTEM_FIELDS if network or not name.startswith("network.")]
    _require(entry, fields, required)
    values = _own_values(entry, fields)
    device = matching(written := values.pop("device"), devices)
    if device is None:
        raise entry.error_at("device", unknown("device", written, devices))
    _check_devices(entry, fields)
    _check_hosts(entry, fields)
    if fields["intra.fabric"].value == "shared-memory":  # processors: NCCL is for GPUs
        values.setdefault("library", "gloo")
    system = System(
        id=entry.id,
        device=devices[device],
        intra=IntraNode(**_members(fields, "intra")),
        network=Network(**network) if network else None,
        sources=_sources(fields),
        **values,
    )
    return replace(system, curves=tuple(_with_latencies(system)))


def _with_latencies(system: System) -> Iterator[Curve]:
    """A system's curves with the latencies of the file that they stand in."""
    crossing = system.network.latency if system.network else None
    for curve in system.curves:
        yield replace(curve, hop=system.intra.latency, crossing=crossing)


def _check_devices(entry: Entry, fields: Fields) -> None:
    """A topology that is written out has exactly the devices of the node."""
    if "topology" not in fields:
        return
    cables: Any = fields["topology"].value
    devices: Any = fields["devices_per_node"].value
    missing, strange = missing_devices(cables, devices)
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        message = f"has no cable of {missing[0]}{more}; devices_per_node is {devices}"
        raise entry.error_at("topology", message)
    if strange:
        message = f"names {strange[0]}, but devices_per_node is {devices}"
        raise entry.error_at("topology", f"{message}; allowed: gpu:0 to gpu:{devices - 1}")


def _check_hosts(entry: Entry, fields: Fields) -> None:
    """Hosts hold equally many of a node's devices."""
    if entry.fields.get("devices_per_host") is None:  # taken over with another devices_per_node
        return
    host: Any = fields["devices_per_host"].value
    node: Any = fields["devices_per_node"].value
    if node % host:
        allowed = ", ".join(str(n) for n in range(1, node + 1) if node % n == 0)
        message = f"is {host}, which does not divide devices_per_node={node}; allowed: {allowed}"
        raise entry.error_at("devices_per_host", message)


def _require(entry: Entry, fields: Fields, required: Sequence[str]) -> None:
    missing = [name for name in required if name not in fields and name not in _OPTIONAL]
    if missing:
        noun = NOUNS[entry.section]
        raise entry.error_at(
            "",
            f"lacks {', '.join(missing)}; write them, or take them over from a known {noun} "
            f"with 'from: ID'",
        )


def _own_values(entry: Entry, fields: Fields) -> dict[str, Any]:
    """The values of the fields outside peak_flops, intra and network."""
    direct = {name: reading.value for name, reading in fields.items() if "." not in name}
    return {"name": entry.id, **direct}


def _members(fields: Fields, group: str) -> dict[str, Any]:
    """The values of the fields inside peak_flops, intra or network, by their inner name."""
    head = f"{group}."
    return {
        name.removeprefix(head): reading.value
        for name, reading in fields.items()
        if name.startswith(head)
    }


def _sources(fields: Fields) -> dict[str, str]:
    return {name: reading.source for name, reading in fields.items() if reading.source}


def unknown(noun: str, word: str, names: Iterable[str]) -> str:
    """That there is no device or system of a name, and which there are."""
    rest = alternatives(word, names, label="known", listing=f"parsim catalog {noun}s")
    return f"unknown {noun} '{shown(word)}'{rest}"
