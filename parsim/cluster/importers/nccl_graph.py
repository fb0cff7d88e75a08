"""Reads the XML that NCCL writes to NCCL_GRAPH_DUMP_FILE: its channels and their speeds.

    <graphs version="1">
      <graph id="0" pattern="4" nchannels="12" speedintra="20" speedinter="20" typeintra="NVL">
        <channel><gpu dev="0"/><gpu dev="1"/> ...</channel>

Channels x speed (GB/s) is what NCCL itself expects of the node, so over the quoted rates it gives
the efficiencies; the number of channels is what a collective holds of a device. Pattern 4 is the
ring; interfaces stand at the ends of a channel as <net dev=...>.
"""

from __future__ import annotations

from pathlib import Path

from parsim.cluster.importers.imported import (
    PCIE_BASE,
    Field,
    ImportedSystem,
    base_system,
    nvlink_of,
)
from parsim.cluster.importers.markup import Element
from parsim.errors import CatalogError
from parsim.units import written_rate

_RING = 4


def read_rings(root: Element, file: str, device: str | None) -> ImportedSystem:
    """A system like the device's, with the channels and efficiencies of NCCL's rings.

    Raises:
        ScenarioError: no ring in the file, or one without channels, devices or speeds.
        CatalogError: `device` is not given, or not in the catalog.
    """
    if device is None:
        raise CatalogError(f"{file}: names no device; say which it is, e.g. --device h100-sxm-80gb")
    rings = [graph for graph in root.all("graph") if graph.number(file, "pattern") == _RING]
    if not rings:
        raise root.error(file, f'<graphs> has no ring, <graph pattern="{_RING}" ...>')
    ring = rings[0]
    devices, nets = _members(ring, file)
    channels = int(ring.number(file, "nchannels", least=1))
    within = channels * ring.number(file, "speedintra", least=1e-3) * 1e9
    nvlink = ring.attributes.get("typeintra", "NVL").startswith("NV")
    base = base_system(nvlink_of(device).base if nvlink else PCIE_BASE)
    source = f"{Path(file).name}: {channels} channels of NCCL's ring"
    share, notes = _share(within, base.intra.bandwidth, "inside a node")
    fields: dict[str, Field] = {
        "devices_per_node": (str(devices), source),
        "channels": (str(channels), source),
        "intra.efficiency": (f"{share:.6g}", f"{source} of {written_rate(within / channels)}"),
    }
    if nets and base.network is not None:
        across = channels * ring.number(file, "speedinter", least=1e-3) * 1e9
        fields["network.nics_per_node"] = (str(nets), source)
        share, more = _share(across, nets * base.network.nic_bandwidth, "between nodes")
        origin = f"{source} of {written_rate(across / channels)}"
        fields["network.efficiency"] = (f"{share:.6g}", origin)
        notes += more
    if base.curves:
        fields["curves"] = ("null", "")
    rate = written_rate(base.intra.bandwidth)
    quoted = f"quoted rates are those of {base.id}: {rate} a device"
    notes.append(f"{quoted}; the file has only what is used")
    return ImportedSystem(origin=source, base=base.id, device=device, fields=fields, notes=notes)


def _members(ring: Element, file: str) -> tuple[int, int]:
    """Devices and interfaces that the channels name."""
    listed = ring.all("channel")
    if not listed:
        raise ring.error(file, "<graph> has no <channel>")
    for channel in listed:
        seen: set[int] = set()
        for gpu in channel.all("gpu"):
            dev = int(gpu.number(file, "dev"))
            if dev in seen:
                raise gpu.error(file, f'<gpu dev="{dev}"> is in the channel twice')
            seen.add(dev)
        if not seen:
            raise channel.error(file, "<channel> has no <gpu>")
    gpus = {element.text(file, "dev") for channel in listed for element in channel.all("gpu")}
    nets = {element.text(file, "dev") for channel in listed for element in channel.all("net")}
    return len(gpus), len(nets)


def _share(rate: float, quoted: float, where: str) -> tuple[float, list[str]]:
    """Share of the quoted rate; NCCL's steps may add up to a little more than there is."""
    if rate <= quoted:
        return rate / quoted, []
    total = f"channels add up to {written_rate(rate)} {where}"
    return 1.0, [f"{total}, quoted are {written_rate(quoted)}: taken as 1"]
