"""Reads the XML that NCCL writes to NCCL_TOPO_DUMP_FILE.

    <system version="1">
      <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
        <pci busid="0000:07:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
          <pci busid="0000:0b:00.0" class="0x030200" ...>
            <gpu dev="0" sm="80" rank="0"><nvlink target="..." count="12" tclass="0x068000"/></gpu>
          </pci>
          <pci class="0x020700" ...><nic><net name="mlx5_0" dev="0" speed="200000"/></nic></pci>

A cpu is a host, a pci of class 0x0604 a switch. NVLinks to class 0x0680 go to the NVSwitches, which
are one part. PCI Express: GT/s x lanes x 128/130 / 8 (8/10 up to 5 GT/s). Interfaces: Mb/s / 8.

Files that clouds ship for NCCL_TOPO_FILE leave gpu, nvlink, nic and net out: then the class of a
pci says what it is, the order of bus ids which, and the catalog which links its kind has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from parsim.cluster.hardware import Cable, System
from parsim.cluster.importers.cables import Joined, hub_or_mesh, own_switches, pcie_cable, switched
from parsim.cluster.importers.imported import (
    PCIE_BASE,
    Field,
    ImportedSystem,
    NVLink,
    base_system,
    check_cables,
    nvlink_of,
    unnamed,
)
from parsim.cluster.importers.markup import Element
from parsim.cluster.importers.nccl_tree import Tree, order_of, walk
from parsim.cluster.topology.node_cables import MESHES
from parsim.errors import CatalogError, shown
from parsim.units import written_rate

_NVSWITCH = "0x0680"
_OF_SM = {
    70: "v100-sxm-32gb",
    80: "a100-sxm-80gb",
    90: "h100-sxm-80gb",
    100: "b200-sxm",
    103: "b300-sxm",
}
_PCIE_OF_SM = {80: "a100-pcie-80gb", 90: "h100-pcie-80gb"}
# What GPUs reach between sockets, bytes/s: NCCL's figures by maker, for Intel from a model on.
_CPU_RATES = {"AuthenticAMD": 16e9, "ppc64": 32e9, "arm64": 6e9}
_INTEL = ((0xCF, 40e9), (0x8F, 22e9), (0x55, 10e9), (0, 6e9))


def read_nccl(root: Element, file: str, device: str | None) -> ImportedSystem:
    """The node that a dump describes.

    Raises:
        ScenarioError: an element without what it needs, a device twice, or parts not joined.
        CatalogError: devices whose kind `device` has to say.
    """
    return node_of(walk(root, file), file, device, "topology dump of NCCL")


def node_of(tree: Tree, file: str, device: str | None, form: str) -> ImportedSystem:
    """The node of a tree of sockets, switches, devices and interfaces; `form` is the file's.

    Raises:
        ScenarioError: parts that are not joined.
        CatalogError: devices whose kind `device` has to say.
    """
    order = sorted(tree.gpus, key=order_of)
    known, notes = _device(tree, file, device)
    nvlink = nvlink_of(known)
    joined = _usual(known, order, nvlink, notes) if tree.bare else _nvlinks(tree, order, nvlink)
    base = base_system(nvlink.base if joined.whole else PCIE_BASE)
    speed, used = _interfaces(tree)
    below = [
        pcie_cable(part, above, nvlink, base, rate)
        for part, above, rate in _numbered_parts(tree, order, used)
    ]
    cables = [*own_switches([*joined.cables, *below]), *_between_sockets(tree, file)]
    check_cables(file, cables, len(order))
    source = f"{Path(file).name}: {form}"
    return ImportedSystem(
        origin=source,
        base=base.id,
        device=known,
        fields={
            "devices_per_node": (str(len(order)), source),
            **joined.fields(base, source, nvlink),
            **_network_fields(len(used), speed, source),
        },
        cables=cables,
        notes=[*notes, *_interface_notes(tree, used, speed, base), *joined.notes],
    )


def _interface_notes(tree: Tree, used: Sequence[str], speed: float, base: System) -> Iterator[str]:
    """What is assumed of the interfaces, and which are left aside."""
    if used and not speed:
        yield f"the speed of interfaces is not stated: taken as that of {base.id}"
    if len(used) < len(tree.nets):
        yield f"{len(tree.nets) - len(used)} interfaces of other speeds are left out"
    if not used:
        yield "no interfaces are listed: one node only"


def _numbered_parts(
    tree: Tree, order: Sequence[str], used: Sequence[str]
) -> Iterator[tuple[str, str, float | None]]:
    """Parts, what is above them and at which rate; devices and interfaces by number, unused not."""
    names = {f"gpu@{dev}": f"gpu:{index}" for index, dev in enumerate(order)}
    names |= {f"net@{dev}": f"nic:{index}" for index, dev in enumerate(used)}
    for part, above, rate in tree.parts:
        name = names.get(part, part)
        if "@" not in name:
            yield name, above, rate


def _between_sockets(tree: Tree, file: str) -> Iterator[Cable]:
    """A cable between each two sockets."""
    for a, b in combinations(range(len(tree.hosts)), 2):
        yield Cable(f"host:{a}", f"host:{b}", "cpu", _cpu_rate(tree.hosts[a], file))


def _network_fields(interfaces: int, speed: float, source: str) -> dict[str, Field]:
    """What is said of a node's interfaces and of their speed, bytes/s, where it is stated."""
    if not interfaces:
        return {"network": ("null", "")}
    fields: dict[str, Field] = {"network.nics_per_node": (str(interfaces), source)}
    if speed:
        fields["network.nic_bandwidth"] = (written_rate(speed), source)
    return fields


def _device(tree: Tree, file: str, device: str | None) -> tuple[str, list[str]]:
    """The named device, else the usual one of the compute capability."""
    if device is not None:
        return device, []
    if tree.bare:
        raise unnamed(file)
    first = next(iter(tree.gpus.values()))[0]
    capability = int(first.number(file, "sm"))
    linked = any(gpu.all("nvlink") for gpu, _ in tree.gpus.values())
    known = (_OF_SM if linked else {**_OF_SM, **_PCIE_OF_SM}).get(capability)
    if known is None:
        raise CatalogError(
            f"{file}: devices of sm={capability} are not known; say which they are, "
            f"e.g. --device h100-sxm-80gb"
        )
    return known, [f"device taken from sm={capability}; another one: --device ID"]


def _usual(known: str, order: Sequence[str], nvlink: NVLink, notes: list[str]) -> Joined:
    """The links that such devices usually have: switches, eight V100 the DGX-1's mesh."""
    base = base_system(nvlink.base)
    notes.append(f"NVLinks are not stated: taken as those of {base.id}")
    if "pcie" in known or len(order) < 2:
        return hub_or_mesh({}, len(order), nvlink, base)
    if base.intra.fabric == "nvswitch":
        return switched([nvlink.links] * len(order), nvlink, base)
    mesh = MESHES.get(len(order), ())
    share = nvlink.links // sum(mesh[0]) if mesh else 0
    pairs = {(a, b): w * share for a, row in enumerate(mesh) for b, w in enumerate(row)}
    pairs = {(a, b): width for (a, b), width in pairs.items() if a < b and width}
    return hub_or_mesh(pairs, len(order), nvlink, base)


def _nvlinks(tree: Tree, order: Sequence[str], nvlink: NVLink) -> Joined:
    """To switches by the count of each device, else between the devices that targets name."""
    base = base_system(nvlink.base)
    index_of = {tree.gpus[dev][1]: index for index, dev in enumerate(order)}
    to_switch = [0] * len(order)
    widths: Counter[tuple[int, int]] = Counter()
    for index, dev in enumerate(order):
        for link in tree.gpus[dev][0].all("nvlink"):
            count = int(link.number(tree.file, "count", least=1))
            if link.text(tree.file, "tclass").startswith(_NVSWITCH):
                to_switch[index] += count
                continue
            target = link.text(tree.file, "target")
            if target not in index_of:
                message = f"<nvlink target='{shown(target)}'> is the busid of no <gpu> in the file"
                raise link.error(tree.file, message)
            widths[index, index_of[target]] += count
    if all(to_switch):
        return switched(to_switch, nvlink, base)
    pairs = {(a, b): max(n, widths[b, a]) for (a, b), n in widths.copy().items() if a < b}
    pairs |= {(b, a): n for (a, b), n in widths.items() if b < a and (b, a) not in pairs}
    return hub_or_mesh(pairs, len(order), nvlink, base)


def _interfaces(tree: Tree) -> tuple[float, list[str]]:
    """Speed of most interfaces (the faster of equals, 0 where not stated), and which have it."""
    speeds = {
        key: 0.0 if net.name == "pci" else net.number(tree.file, "speed", least=1)
        for key, net in tree.nets.items()
    }
    if not speeds:
        return 0.0, []
    counts = Counter(speeds.values())
    most = max(counts, key=lambda speed: (counts[speed], speed))
    return most * 1e6 / 8, sorted((key for key in speeds if speeds[key] == most), key=order_of)


def _cpu_rate(host: Element, file: str) -> float:
    for word in ("vendor", "arch"):
        if host.attributes.get(word) in _CPU_RATES:
            return _CPU_RATES[host.attributes[word]]
    model = host.number(file, "modelid") if "modelid" in host.attributes else 0
    return next(rate for least, rate in _INTEL if model >= least)
