"""Reads the XML that NCCL writes to NCCL_GRAPH_DUMP_FILE: its channels and their speeds.

    <graphs version="1">
      <graph id="0" pattern="4" nchannels="12" speedintra="20" speedinter="20" typeintra="NVL">
        <channel><gpu dev="0"/><gpu dev="1"/> ...</channel>

Channels x speed (GB/s) is what NCCL itself expects of the node, so over the quoted rates it gives
the efficiencies; the number of channels is what a collective holds of a device. Pattern 4 is the
ring; interfaces stand at the ends of a channel as <net dev=...>.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parsim.cluster.hardware import System
from parsim.cluster.importers.imported import (
    PCIE_BASE,
    Field,
    ImportedSystem,
    base_system,
    nvlink_of,
    unnamed,
)
from parsim.cluster.importers.markup import Element
from parsim.units import written_rate

_RING = 4


def read_rings(root: Element, file: str, device: str | None) -> ImportedSystem:
    """A system like the device's, with the channels and efficiencies of NCCL's rings.

    Raises:
        ScenarioError: no ring in the file, or one without channels, devices or speeds.
        CatalogError: `device` is not given, or not in the catalog.
    """
    if device is None:
        raise unnamed(file)
    rings = [graph for graph in root.all("graph") if graph.number(file, "pattern") == _RING]
    if not rings:
        raise root.error(file, f'<graphs> has no ring, <graph pattern="{_RING}" ...>')
    ring = _Ring.read(rings[0], file)
    base = base_system(nvlink_of(device).base if ring.nvlink else PCIE_BASE)
    inside, notes = ring.inside(base)
    across, more = ring.across(base)
    curves: dict[str, Field] = {"curves": ("null", "")} if base.curves else {}
    rate = written_rate(base.intra.bandwidth)
    quoted = f"quoted rates are those of {base.id}: {rate} a device; the file has only what is used"
    return ImportedSystem(
        origin=ring.source,
        base=base.id,
        device=device,
        fields={**inside, **across, **curves},
        notes=[*notes, *more, quoted],
    )


Told = tuple[dict[str, Field], list[str]]
"""Fields of a system, and what a user must know of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ring:
    """NCCL's ring: its members, channels, and the bytes/s of one inside a node and between nodes.

    The speed between nodes is read where it is needed: a file of one node may lack it.
    """

    element: Element
    file: str
    devices: int
    nets: int
    channels: int
    speed: float

    @classmethod
    def read(cls, ring: Element, file: str) -> _Ring:
        """Read the ring's element."""
        devices, nets = _members(ring, file)
        channels = int(ring.number(file, "nchannels", least=1))
        speed = ring.number(file, "speedintra", least=1e-3)
        return cls(
            element=ring, file=file, devices=devices, nets=nets, channels=channels, speed=speed
        )

    @property
    def nvlink(self) -> bool:
        """Whether it runs over NVLinks inside a node."""
        return self.element.attributes.get("typeintra", "NVL").startswith("NV")

    @property
    def source(self) -> str:
        """What the fields rest on."""
        return f"{Path(self.file).name}: {self.channels} channels of NCCL's ring"

    def inside(self, base: System) -> Told:
        """The node, and the share of its links' rate that the channels take."""
        within = self.channels * self.speed * 1e9
        share, notes = _share(within, base.intra.bandwidth, "inside a node")
        origin = f"{self.source} of {written_rate(within / self.channels)}"
        fields = {
            "devices_per_node": (str(self.devices), self.source),
            "channels": (str(self.channels), self.source),
            "intra.efficiency": (f"{share:.6g}", origin),
        }
        return fields, notes

    def across(self, base: System) -> Told:
        """The interfaces, and the share of theirs; nothing where it stays within a node."""
        if not self.nets or base.network is None:
            return {}, []
        speed = self.element.number(self.file, "speedinter", least=1e-3)
        between = self.channels * speed * 1e9
        share, notes = _share(between, self.nets * base.network.nic_bandwidth, "between nodes")
        origin = f"{self.source} of {written_rate(between / self.channels)}"
        fields = {
            "network.nics_per_node": (str(self.nets), self.source),
            "network.efficiency": (f"{share:.6g}", origin),
        }
        return fields, notes


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
