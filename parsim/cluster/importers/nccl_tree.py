"""Walks through the elements of NCCL's topology XML and collects what hangs on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parsim.cluster.importers.markup import Element
from parsim.units import whole_number

_SWITCH = "0x0604"
_DISPLAYS, _NETWORKS = ("0x0302", "0x0300"), ("0x0207", "0x0200")


@dataclass(slots=True)
class Tree:
    """What has been met on the way through the file."""

    file: str
    parts: list[tuple[str, str, float | None]] = field(default_factory=list)
    hosts: list[Element] = field(default_factory=list)
    gpus: dict[str, tuple[Element, str]] = field(default_factory=dict)
    nets: dict[str, Element] = field(default_factory=dict)
    switches: int = 0

    @property
    def bare(self) -> bool:
        """Whether devices are told by their class alone, without their links."""
        return not any(gpu.name == "gpu" for gpu, _ in self.gpus.values())

    def pci(self, element: Element, above: str) -> None:
        """A switch, a device, or an interface, and all below it."""
        rate = _pcie_rate(element, self.file)
        part, kind = above, element.text(self.file, "class")
        if kind.startswith(_SWITCH):
            part = f"pcie:{self.switches}"
            self.switches += 1
            self.parts.append((part, above, rate))
        if not element.children and kind.startswith(_DISPLAYS):
            self.gpu(element, element.text(self.file, "busid"), above, rate)
        if not element.children and kind.startswith(_NETWORKS):
            self.net(element, above, rate)
        for child in element.children:
            if child.name == "pci":
                self.pci(child, part)
            elif child.name == "gpu":
                self.gpu(child, element.attributes.get("busid", ""), above, rate)
            elif child.name == "nic":
                self.nic(child, above, rate)

    def gpu(self, element: Element, busid: str, above: str, rate: float | None) -> None:
        """A device below `above`, over a link of a rate."""
        key = self.key(element, {known: first for known, (first, _) in self.gpus.items()})
        self.gpus[key] = element, busid
        self.parts.append((f"gpu@{key}", above, rate))

    def nic(self, element: Element, above: str, rate: float | None) -> None:
        """The interfaces of one card."""
        for net in element.all("net"):
            self.net(net, above, rate)

    def net(self, element: Element, above: str, rate: float | None) -> None:
        """An interface below `above`, over a link of a rate."""
        key = self.key(element, self.nets)
        self.nets[key] = element
        self.parts.append((f"net@{key}", above, rate))

    def key(self, element: Element, known: Mapping[str, Element]) -> str:
        """What tells a new device or interface: dev, or the bus id of one told by its class."""
        if element.name == "pci":
            key = f'busid="{element.text(self.file, "busid")}"'
        else:
            key = f'dev="{int(element.number(self.file, "dev"))}"'
        if key in known:
            message = f"is there twice; first on line {known[key].line}"
            raise element.error(self.file, f"<{element.name} {key}> {message}")
        return key


def order_of(key: str) -> tuple[int, str]:
    """By number, or by text for bus ids."""
    text = key.partition("=")[2].strip('"')
    number = whole_number(text)
    return (10**9, text) if number is None else (number, "")


def walk(root: Element, file: str) -> Tree:
    """All parts below the cpu elements.

    Raises:
        ScenarioError: an element without what it needs, a device twice, or no device.
    """
    tree = Tree(file)
    for cpu in root.all("cpu"):
        host = f"host:{len(tree.hosts)}"
        tree.hosts.append(cpu)
        for child in cpu.children:
            if child.name == "pci":
                tree.pci(child, host)
            elif child.name == "nic":
                tree.nic(child, host, None)
    if not tree.hosts:
        raise root.error(file, "<system> has no <cpu>")
    if not tree.gpus:
        raise root.error(
            file,
            "<system> has no <gpu> and no <pci> of class 0x0302; a dump of a running job has them",
        )
    return tree


def _pcie_rate(element: Element, file: str) -> float | None:
    """Bytes/s of a PCI Express link; None where its speed or width is left empty."""
    speed = element.attributes.get("link_speed", "").split()
    width = element.attributes.get("link_width", "")
    if not speed or width in ("", "0"):
        return None
    lanes = element.number(file, "link_width", least=1)
    try:
        transfers = float(speed[0])
    except ValueError:
        transfers = -1.0
    if not 0 < transfers < 1e4:
        raise element.error(
            file, f"link_speed='{' '.join(speed)}' must be such as '16.0 GT/s PCIe'"
        )
    coding = 0.8 if transfers <= 5 else 128 / 130
    return transfers * 1e9 * lanes * coding / 8
