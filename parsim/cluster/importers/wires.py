"""Cables of imported nodes: NVLinks from a table of widths, PCI Express, and single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parsim.cluster.cables import parts_apart
from parsim.cluster.hardware import Cable, Fabric, LinkClass, System
from parsim.cluster.importers.found import Field, NVLink, rate_text
from parsim.cluster.topology.node_cables import PCIE_EFFICIENCY, PCIE_OF, PCIE_X16


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """NVLinks of a node, whether they join all devices, and what one device sends over them."""

    fabric: Fabric
    cables: Sequence[Cable]
    whole: bool
    bandwidth: float
    notes: Sequence[str] = ()

    def fields(self, base: System, source: str, made: NVLink) -> dict[str, Field]:
        """The system's intra block."""
        found: dict[str, Field] = {"intra.fabric": (self.fabric, "")}
        if self.whole:
            said = f"{source}; {made.link / 1e9:g} GB/s a link of {made.generation}"
            found["intra.bandwidth"] = (rate_text(self.bandwidth), said)
            reduces = base.intra.nvls and self.fabric == "nvswitch"
            found["intra.nvls"] = ("true" if reduces else "false", "")
        else:
            level = PCIE_OF[made.generation]
            rate = PCIE_X16[level]
            said = f"assumption: PCI Express {level}.0 x16, the usual of {made.generation}"
            found["intra.bandwidth"] = (rate_text(rate), said)
        if base.curves and (self.fabric != base.intra.fabric):
            found["curves"] = ("null", "")
        return found


def hub_or_mesh(
    widths: Mapping[tuple[int, int], int], devices: int, made: NVLink, base: System
) -> Joined:
    """What NVLink counts between pairs of devices mean.

    All pairs alike, and more links than a device has for each: a switch, on which every device has
    that many. Else direct links. Where they do not join all devices, PCI Express decides what a
    collective of all can do, and the closed forms use its rate.
    """
    cables = [
        Cable(
            source=f"gpu:{a}",
            target=f"gpu:{b}",
            link_class="nvlink",
            bandwidth=width * made.link,
            latency=base.intra.latency,
            efficiency=min(base.intra.efficiency, 1.0),
        )
        for (a, b), width in sorted(widths.items())
    ]
    counts = set(widths.values())
    every = devices > 1 and len(widths) == devices * (devices - 1) // 2
    if every and len(counts) == 1 and max(counts) * (devices - 1) > made.links:
        return switched([max(counts)] * devices, made, base)
    if not widths:
        return Joined(fabric="pcie", cables=(), whole=False, bandwidth=0.0)
    sums = [sum(w for pair, w in widths.items() if one in pair) for one in range(devices)]
    if min(sums) and not parts_apart(cables):
        least = min(sums) * made.link
        return Joined(fabric="nvlink-mesh", cables=cables, whole=True, bandwidth=least)
    note = "NVLink joins only some devices; closed forms take the rate of PCI Express for all"
    return Joined(fabric="pcie", cables=cables, whole=False, bandwidth=0.0, notes=(note,))


def switched(counts: Sequence[int], made: NVLink, base: System) -> Joined:
    """Devices with so many NVLinks each to the switches, which are one part."""
    cables = [
        Cable(
            source=f"gpu:{place}",
            target="nvswitch:0",
            link_class="nvlink",
            bandwidth=count * made.link,
            latency=base.intra.latency / 2,
            efficiency=min(base.intra.efficiency, 1.0),
        )
        for place, count in enumerate(counts)
    ]
    return Joined(fabric="nvswitch", cables=cables, whole=True, bandwidth=min(counts) * made.link)


def pcie_cable(one: str, two: str, made: NVLink, base: System, rate: float | None = None) -> Cable:
    """A PCI Express link; x16 of the devices' generation where its speed is not stated."""
    inside = base.intra.fabric == "pcie"
    return Cable(
        source=one,
        target=two,
        link_class="pcie",
        bandwidth=rate or PCIE_X16[PCIE_OF[made.generation]],
        latency=base.intra.latency / 2 if inside else 0.0,
        efficiency=base.intra.efficiency if inside else PCIE_EFFICIENCY,
    )


def own_switches(cables: Sequence[Cable]) -> list[Cable]:
    """Where devices and as many interfaces (or a multiple) share a switch, one below it for each.

    NCCL gives each device its own of equally near interfaces; with a switch of their own they are
    nearest, so that routes do the same instead of meeting on one interface by chance.
    """
    beside: dict[str, list[str]] = {}
    for one in cables:
        for end, switch in ((one.source, one.target), (one.target, one.source)):
            if one.link_class == "pcie" and switch.startswith("pcie:"):
                beside.setdefault(switch, []).append(end)
    free = 1 + max((int(switch.partition(":")[2]) for switch in beside), default=0)
    below: dict[tuple[str, str], str] = {}
    new: list[tuple[str, str]] = []
    for switch, ends in beside.items():
        gpus, nics = ([end for end in ends if end.startswith(kind)] for kind in ("gpu:", "nic:"))
        if len(gpus) < 2 or not nics or len(nics) % len(gpus):
            continue
        for place, gpu in enumerate(gpus):
            own = f"pcie:{free}"
            free += 1
            new.append((own, switch))
            each = len(nics) // len(gpus)
            members = [gpu, *nics[place * each : (place + 1) * each]]
            below |= {(end, switch): own for end in members}
    return [*_moved(cables, below), *_links_up(cables, new)]


def _moved(cables: Sequence[Cable], below: Mapping[tuple[str, str], str]) -> list[Cable]:
    return [
        replace(
            one,
            source=below.get((one.target, one.source), one.source),
            target=below.get((one.source, one.target), one.target),
        )
        for one in cables
    ]


def _links_up(cables: Sequence[Cable], new: Sequence[tuple[str, str]]) -> list[Cable]:
    """A new switch's link is as fast as the fastest on the old one."""
    found = []
    for own, switch in new:
        like = max(
            (one for one in cables if switch in (one.source, one.target)),
            key=lambda one: one.bandwidth,
        )
        found.append(replace(like, source=own, target=switch))
    return found


def direct(one: str, two: str, link_class: LinkClass, rate: float) -> Cable:
    """A cable without latency of its own."""
    return Cable(source=one, target=two, link_class=link_class, bandwidth=rate)
