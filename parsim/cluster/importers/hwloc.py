"""Reads the XML of hwloc, `lstopo --of xml`: sockets, PCI tree with speeds, devices, interfaces.

    <topology version="2.0"> <object type="Machine"> <object type="Package">
      <info name="CPUVendor" value="AuthenticAMD"/>
      <object type="Bridge" bridge_type="0-1">                                  a host bridge
        <object type="Bridge" bridge_type="1-1" pci_link_speed="31.507692">     a switch or a port
          <object type="PCIDev" pci_busid="0000:07:00.0" pci_type="0302 [10de:20b2]"
                  pci_link_speed="31.507692">                                   GB/s
            <object type="OSDev" subtype="CUDA" osdev_type="5" name="cuda0"/>
          <object type="PCIDev" pci_type="0207 [15b3:101b]">
            <object type="OSDev" osdev_type="3" name="mlx5_0"/>

A package (1.x: socket) is a host. Of the bridges, those with several devices below them are
switches; the others are ports of a single way, whose slowest link counts. Interfaces are those that
verbs can use (OpenFabrics): management ports are none. NVLinks and the speed of interfaces are not
in the file (its NVLinkBandwidth matrix is left aside): the catalog's usual ones are taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cluster.importers.imported import ImportedSystem, driver_device
from parsim.cluster.importers.markup import Element
from parsim.cluster.importers.nccl import node_of
from parsim.cluster.importers.nccl_tree import Tree

_HOSTS = ("Package", "Socket")
_VERBS = ("3", "OpenFabrics")
_NVIDIA = "[10de:"


def read_hwloc(root: Element, file: str, device: str | None) -> ImportedSystem:
    """The node that a file of lstopo describes.

    Raises:
        ScenarioError: an object without what it needs, a device twice, or no device.
        CatalogError: devices whose kind `device` has to say.
    """
    tree = Tree(file)
    for machine in root.all("object"):
        _Walk(tree).below(machine, None)
    if not tree.gpus:
        raise root.error(
            file, "has no PCIDev of class 0302; run lstopo with I/O: lstopo --whole-io --of xml"
        )
    return node_of(tree, file, device or _model(root, file), "XML of lstopo")


class _Walk:
    """Collects hosts, switches, devices and interfaces on the way down."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def below(self, element: Element, host: str | None) -> None:
        """Objects of the machine: packages become hosts, bridges their PCI trees."""
        for child in element.all("object"):
            kind = child.text(self.tree.file, "type")
            if kind in _HOSTS:
                self.below(child, self._host(child))
            elif kind in ("Bridge", "PCIDev"):
                self._pci(child, host or self._first_host(), None)
            else:
                self.below(child, host)

    def _host(self, package: Element) -> str:
        infos = {
            x.attributes.get("name"): x.attributes.get("value", "") for x in package.all("info")
        }
        known = {"vendor": infos.get("CPUVendor", "")}
        if number := infos.get("CPUModelNumber"):
            known["modelid"] = number
        cpu = Element("cpu", known, package.line, package.column)
        self.tree.hosts.append(cpu)
        return f"host:{len(self.tree.hosts) - 1}"

    def _first_host(self) -> str:
        """The only host of a machine whose file does not say at which socket its bridges are."""
        if not self.tree.hosts:
            self.tree.hosts.append(Element("cpu", {}, 1, 1))
        return "host:0"

    def _pci(self, element: Element, above: str, rate: float | None) -> None:
        """A bridge and all below it, or a device; `rate` is the slowest link since `above`."""
        rates = (rate, self._rate(element))
        rate = min((known for known in rates if known is not None), default=None)
        if element.text(self.tree.file, "type") == "PCIDev":
            self._device(element, above, rate)
            return
        useful = [child for child in element.all("object") if any(_used(child))]
        part = above
        if len(useful) > 1 and element.attributes.get("bridge_type") == "1-1":
            part, self.tree.switches = f"pcie:{self.tree.switches}", self.tree.switches + 1
            self.tree.parts.append((part, above, rate))
            rate = None
        for child in useful:
            self._pci(child, part, rate)

    def _device(self, element: Element, above: str, rate: float | None) -> None:
        busid = element.text(self.tree.file, "pci_busid")
        named = Element("pci", {"busid": busid}, element.line, element.column)
        if _is_gpu(element):
            self.tree.gpu(named, busid, above, rate)
        else:
            self.tree.net(named, above, rate)

    def _rate(self, element: Element) -> float | None:
        """Bytes/s of the link to the part above; None where it is not known or 0."""
        if not element.attributes.get("pci_link_speed"):
            return None
        return element.number(self.tree.file, "pci_link_speed") * 1e9 or None


def _used(element: Element) -> Iterator[Element]:
    """Devices and interfaces at or below an object."""
    kinds = {child.attributes.get("osdev_type") for child in element.all("object")}
    wanted = _is_gpu(element) or not kinds.isdisjoint(_VERBS)
    if element.attributes.get("type") == "PCIDev" and wanted:
        yield element
    for child in element.all("object"):
        yield from _used(child)


def _is_gpu(element: Element) -> bool:
    """Class 0302, or a display (0300) of NVIDIA; a board's own display is none."""
    kind = element.attributes.get("pci_type", "")
    return kind.startswith("0302") or (kind.startswith("0300") and _NVIDIA in kind)


def _model(root: Element, file: str) -> str | None:
    """The catalog's device of the first GPU model that is named; None where none is."""
    open_ = [root]
    while open_:
        element = open_.pop()
        for info in element.all("info"):
            if info.attributes.get("name") == "GPUModel":
                return driver_device(info.attributes.get("value", ""), file)
        open_ += reversed(element.all("object"))
    return None
