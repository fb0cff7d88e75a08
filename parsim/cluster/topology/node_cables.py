"""The cables within one node, by fabric: which parts there are and how fast each cable is.

    nvswitch, DGX A100                   pcie, 8 cards
    gpu:0 ── nvswitch ── gpu:1 ...       gpu:0 ─┐
      │ pcie                             gpu:1 ─┴ pcie:0 ─┐
    pcie:0 ── host:0 ── host:1           gpu:2 ─┐         ├ host:0 ── host:1 ── ...
      │ pcie   (4 switches each)         gpu:3 ─┴ pcie:1 ─┘     cpu
    nic:0                                                   nic:0

A full-mesh has a cable from each device to each other one in the place of the switch.
Names are those within a node; build.py puts the node's number into them. Every device has a way to
its host, for what is copied there, and to the network over PCI Express.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from parsim.cluster.hardware import Cable, Generation, IntraNode, LinkClass, System
from parsim.errors import CatalogError

# NVLinks between the eight V100 of a DGX-1 (row and column: GPU), the hybrid cube mesh that
# `nvidia-smi topo -m` prints as NV1 and NV2. Each row sums to the six links of a V100.
DGX1_LINKS = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
MESHES: Mapping[int, tuple[tuple[int, ...], ...]] = {
    2: ((0, 1), (1, 0)),
    4: ((0, 2, 2, 2), (2, 0, 2, 2), (2, 2, 0, 2), (2, 2, 2, 0)),
    8: DGX1_LINKS,
}
"""Meshes by devices in a node: two cards with all bridges between them, four V100 with two links to
each of the others, and the DGX-1's."""

PCIE_X16: Mapping[int, float] = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9, 7: 242e9}
"""PCI Express x16 by generation, one direction: 8 to 32 GT/s x 16 lanes x 128/130 / 8; from 64 GT/s
on 242 of the 256 bytes of a flit carry data."""
PCIE_OF: Mapping[Generation, int] = {
    "volta": 3,
    "ampere": 4,
    "hopper": 5,
    "blackwell": 5,
    "xgmi": 5,
    "ici": 4,
}
PCIE_EFFICIENCY = 12.0 / 15.75
"""NCCL's figure for PCI Express 3.0 x16 over the raw one; it scales with the generation."""
CPU_LINK: Mapping[Generation, float] = {
    "volta": 6e9,
    "ampere": 16e9,
    "hopper": 22e9,
    "blackwell": 40e9,
    "xgmi": 16e9,
    "ici": 16e9,
}
"""Between two sockets, by what such nodes are built with: Broadwell, AMD, Sapphire Rapids, Emerald
Rapids, AMD. NCCL's figures of what GPUs reach across, so their efficiency is 1."""

# Servers with PCIe cards have two sockets and a switch for every two cards; a Grace two devices.
_CARDS_PER_SWITCH = 2
_SOCKETS = 2
_DEVICES_PER_GRACE = 2


def node_cables(system: System) -> tuple[Cable, ...]:
    """Cables of one node: those that the catalog writes, else by its fabric.

    Latency: half of `intra.latency` for each link at an NVSwitch, a PCIe switch of a PCIe fabric or
    shared memory, so that one switch costs a hop, and a whole one for a direct NVLink. PCI Express
    beside NVLink has none: what it costs a message between nodes is in `network.latency`.

    Raises:
        CatalogError: a mesh of another size than those that are known.
    """
    if system.topology:
        return system.topology
    if system.intra.fabric == "shared-memory":
        return tuple(_hub(system, "memory", "shared-memory"))
    if system.intra.fabric == "pcie":
        return tuple(_pcie_tree(system))
    links = _mesh(system) if system.intra.meshed else _hub(system, "nvswitch", "nvlink")
    return (*links, *(_c2c(system) if system.intra.c2c_bandwidth else _pcie_tree(system)))


def _hub(system: System, name: str, link_class: LinkClass) -> Iterator[Cable]:
    for device in range(system.devices_per_node):
        yield _half_hop(system.intra, f"gpu:{device}", name, link_class)


def _half_hop(intra: IntraNode, source: str, target: str, link_class: LinkClass) -> Cable:
    """A cable of the fabric to a switch, or whatever takes the place of one."""
    latency, efficiency = intra.latency / 2, intra.efficiency
    rate = intra.bandwidth
    return Cable(source, target, link_class, rate, latency=latency, efficiency=efficiency)


def _mesh(system: System) -> Iterator[Cable]:
    """Direct links; a cable of w of a device's m links has w/m of its bandwidth."""
    devices, intra = system.devices_per_node, system.intra
    widths = _widths(system)
    for first, second in combinations(range(devices), 2):
        width = widths[first][second]
        if width:
            yield Cable(
                f"gpu:{first}",
                f"gpu:{second}",
                "nvlink",
                intra.bandwidth * width / sum(widths[first]),
                latency=intra.latency,
                efficiency=intra.efficiency,
            )


def _widths(system: System) -> tuple[tuple[int, ...], ...]:
    """Links between each two devices: one everywhere in a full mesh, else a known NVLink mesh."""
    devices = system.devices_per_node
    if system.intra.fabric == "full-mesh":
        return tuple(tuple(int(a != b) for b in range(devices)) for a in range(devices))
    if devices not in MESHES:
        raise CatalogError(
            f"system {system.id}: fabric nvlink-mesh with devices_per_node={devices} is not known; "
            f"allowed: 2 (a bridged pair), 4 (all joined), {len(DGX1_LINKS)} (the DGX-1); others "
            f"write a topology, or full-mesh where one link joins each two devices"
        )
    return MESHES[devices]


def _pcie_tree(system: System) -> Iterator[Cable]:
    """Devices on switches, switches on the host bridge of their socket, the sockets joined.

    An interface shares a switch with the devices that use it where there are enough interfaces,
    and hangs on their host bridge otherwise.
    """
    devices, network = system.devices_per_node, system.network
    nics = network.nics_per_node if network else 0
    per_switch = _devices_per_switch(system, nics)
    switches = -(-devices // per_switch)
    sockets = min(_SOCKETS, switches)
    for device in range(devices):
        yield _pcie(system, f"gpu:{device}", f"pcie:{device // per_switch}")
    for switch in range(switches):
        yield _pcie(system, f"pcie:{switch}", f"host:{switch * sockets // switches}")
    for nic in range(nics):
        switch = nic * switches // nics
        host = f"host:{switch * sockets // switches}"
        yield _slot(system, f"pcie:{switch}" if nics >= switches else host, f"nic:{nic}")
    for socket in range(1, sockets):
        rate = CPU_LINK[generation_of(system.intra)]
        yield Cable(f"host:{socket - 1}", f"host:{socket}", "cpu", rate)


def _devices_per_switch(system: System, nics: int) -> int:
    """Two cards a switch; beside NVLink one where each device has its own interface."""
    if system.intra.fabric == "pcie" or not nics:
        return min(_CARDS_PER_SWITCH, system.devices_per_node)
    return max(1, min(_CARDS_PER_SWITCH, system.devices_per_node // nics))


def _c2c(system: System) -> Iterator[Cable]:
    """Devices on their Grace by NVLink-C2C, interfaces on the Grace of their device."""
    devices, network = system.devices_per_node, system.network
    for device in range(devices):
        host = f"host:{device // _DEVICES_PER_GRACE}"
        yield Cable(f"gpu:{device}", host, "c2c", system.intra.c2c_bandwidth or 0.0)
    nics = network.nics_per_node if network else 0
    for nic in range(nics):
        device = nic * devices // nics
        yield _slot(system, f"host:{device // _DEVICES_PER_GRACE}", f"nic:{nic}")


def _pcie(system: System, part: str, above: str) -> Cable:
    """A link of the tree: the fabric's own where that is PCI Express, else a slot."""
    if system.intra.fabric != "pcie":
        return _slot(system, part, above)
    return _half_hop(system.intra, part, above, "pcie")


def _slot(system: System, part: str, above: str) -> Cable:
    """PCI Express x16 of the devices' generation, or of the next that carries an interface.

    Its efficiency is NCCL's, or what the interfaces behind it are measured to reach.
    """
    network = system.network
    nic = network.nic_bandwidth if network else 0.0
    usual = PCIE_OF[generation_of(system.intra)]
    fits = [rate for level, rate in PCIE_X16.items() if level >= usual and rate >= nic]
    rate = fits[0] if fits else nic
    reached = network.efficiency * nic / rate if network else 0.0
    return Cable(part, above, "pcie", rate, efficiency=max(PCIE_EFFICIENCY, reached))


def generation_of(intra: IntraNode) -> Generation:
    """Generation as written, else Hopper's where the switch reduces and Ampere's elsewhere."""
    return intra.generation or ("hopper" if intra.nvls else "ampere")
