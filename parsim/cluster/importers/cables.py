"""Cables of imported nodes: NVLinks from a table of widths, PCI Express, and single ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from parsim.cluster.cables import parts_apart
from parsim.cluster.hardware import Cable, Fabric, System
from parsim.cluster.importers.imported import Field, NVLink
from parsim.cluster.topology.node_cables import PCIE_EFFICIENCY, PCIE_OF, PCIE_X16
from parsim.units import written_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """NVLinks of a node, whether they join all devices, and what one device sends over them."""

    fabric: Fabric
    cables: Sequence[Cable]
    whole: bool
    bandwidth: float
    notes: Sequence[str] = ()

    def fields(self, base: System, source: str, nvlink: NVLink) -> dict[str, Field]:
        """The system's intra block."""
        fields: dict[str, Field] = {"intra.fabric": (self.fabric, "")}
        if self.whole:
            origin = f"{source}; {nvlink.link / 1e9:g} GB/s a link of {nvlink.generation}"
            fields["intra.bandwidth"] = (written_rate(self.bandwidth), origin)
            reduces = base.intra.nvls and self.fabric == "nvswitch"
            fields["intra.nvls"] = ("true" if reduces else "false", "")
        else:
            level = PCIE_OF[nvlink.generation]
            rate = PCIE_X16[level]
            origin = f"assumption: PCI Express {level}.0 x16, the usual of {nvlink.generation}"
            fields["intra.bandwidth"] = (written_rate(rate), origin)
        if base.curves and (self.fabric != base.intra.fabric):
            fields["curves"] = ("null", "")
        return fields


def hub_or_mesh(
    widths: Mapping[tuple[int, int], int], devices: int, nvlink: NVLink, base: System
) -> Joined:
    """What NVLink counts between pairs of devices mean.

    All pairs alike, and more links than a device has for each: a switch, on which every device has
    that many. Else direct links. Where they do not join all devices, PCI Express decides what a
    collective of all can do, and closed forms use its rate for groups that NVLink does not join.
    """
    latency, efficiency = base.intra.latency, min(base.intra.efficiency, 1.0)
    joined = [(f"gpu:{a}", f"gpu:{b}", n * nvlink.link) for (a, b), n in sorted(widths.items())]
    cables = [
        Cable(source, target, "nvlink", rate, latency=latency, efficiency=efficiency)
        for source, target, rate in joined
    ]
    counts = set(widths.values())
    every = devices > 1 and len(widths) == devices * (devices - 1) // 2
    if every and len(counts) == 1 and max(counts) * (devices - 1) > nvlink.links:
        return switched([max(counts)] * devices, nvlink, base)
    if not widths:
        return Joined(fabric="pcie", cables=(), whole=False, bandwidth=0.0)
    sums = [sum(w for pair, w in widths.items() if device in pair) for device in range(devices)]
    if min(sums) and not parts_apart(cables):
        least = min(sums) * nvlink.link
        return Joined(fabric="nvlink-mesh", cables=cables, whole=True, bandwidth=least)
    note = "NVLink joins only some devices; groups that it joins in no ring have PCI Express's rate"
    return Joined(fabric="pcie", cables=cables, whole=False, bandwidth=0.0, notes=(note,))


def switched(counts: Sequence[int], nvlink: NVLink, base: System) -> Joined:
    """Devices with so many NVLinks each to the switches, which are one part."""
    latency, efficiency = base.intra.latency / 2, min(base.intra.efficiency, 1.0)
    rates = [(f"gpu:{index}", count * nvlink.link) for index, count in enumerate(counts)]
    cables = [
        Cable(source, "nvswitch:0", "nvlink", rate, latency=latency, efficiency=efficiency)
        for source, rate in rates
    ]
    return Joined(fabric="nvswitch", cables=cables, whole=True, bandwidth=min(counts) * nvlink.link)


def pcie_cable(
    source: str, target: str, nvlink: NVLink, base: System, rate: float | None = None
) -> Cable:
    """A PCI Express link; x16 of the devices' generation where its speed is not stated."""
    inside = base.intra.fabric == "pcie"
    return Cable(
        source,
        target,
        "pcie",
        rate or PCIE_X16[PCIE_OF[nvlink.generation]],
        latency=base.intra.latency / 2 if inside else 0.0,
        efficiency=base.intra.efficiency if inside else PCIE_EFFICIENCY,
    )


def own_switches(cables: Sequence[Cable]) -> list[Cable]:
    """Where devices and as many interfaces (or a multiple) share a switch, one below it for each.

    NCCL gives each device its own of equally near interfaces; with a switch of their own they are
    nearest, so that routes do the same instead of meeting on one interface by chance.
    """
    ends = _ends_by_switch(cables)
    free = count(1 + max((int(switch.partition(":")[2]) for switch in ends), default=0))
    below: dict[tuple[str, str], str] = {}
    added: list[Cable] = []
    for switch, beside in ends.items():
        there = [cable for cable in cables if switch in (cable.source, cable.target)]
        fastest = max(there, key=lambda cable: cable.bandwidth)
        for members in _pairings(beside):
            lower = f"pcie:{next(free)}"
            below |= {(end, switch): lower for end in members}
            added.append(replace(fastest, source=lower, target=switch))
    return [*(_lowered(cable, below) for cable in cables), *added]


def _ends_by_switch(cables: Sequence[Cable]) -> dict[str, list[str]]:
    """What hangs on each PCI Express switch."""
    beside: dict[str, list[str]] = {}
    for cable in cables:
        for end, switch in ((cable.source, cable.target), (cable.target, cable.source)):
            if cable.link_class == "pcie" and switch.startswith("pcie:"):
                beside.setdefault(switch, []).append(end)
    return beside


def _pairings(ends: Sequence[str]) -> Iterator[list[str]]:
    """Each device of a switch with its share of the interfaces; none where they do not go round."""
    gpus, nics = ([end for end in ends if end.startswith(kind)] for kind in ("gpu:", "nic:"))
    if len(gpus) < 2 or not nics or len(nics) % len(gpus):
        return
    each = len(nics) // len(gpus)
    for index, gpu in enumerate(gpus):
        yield [gpu, *nics[index * each : (index + 1) * each]]


def _lowered(cable: Cable, below: Mapping[tuple[str, str], str]) -> Cable:
    """A cable that ends at the switch of its own `below` the old one, where it has one."""
    return replace(
        cable,
        source=below.get((cable.target, cable.source), cable.source),
        target=below.get((cable.source, cable.target), cable.target),
    )
