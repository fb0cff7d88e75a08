"""Makes a node of the table that `nvidia-smi topo -m` prints (`smi_table.py`).

Cells: NV# bonded NVLinks; PIX and PXB within PCIe switches, PHB over a host bridge, NODE between
host bridges of a NUMA node, SYS (once SOC) between sockets. There are no speeds: NVLink's follow
from the device, PCI Express is taken as x16 of its generation, interfaces as the like system's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

from parsim.cluster.hardware import Cable, System
from parsim.cluster.importers.cables import hub_or_mesh, own_switches, pcie_cable
from parsim.cluster.importers.imported import (
    PCIE_BASE,
    WHICH,
    ImportedSystem,
    NVLink,
    base_system,
    check_cables,
    driver_device,
    nvlink_of,
)
from parsim.cluster.importers.smi_table import (
    BRIDGE,
    NVLINKS,
    SWITCH,
    Table,
    named_devices,
    parse_table,
)
from parsim.cluster.topology.node_cables import CPU_LINK
from parsim.errors import CatalogError
from parsim.units import written_rate


def read_table(text: str, file: str, device: str | None) -> ImportedSystem:
    """The node that a table shows.

    Raises:
        ScenarioError: a row or column missing or twice, an unknown cell, or cells that disagree.
        CatalogError: neither the text nor `device` says what the devices are.
    """
    table, names = parse_table(text, file), named_devices(text)
    if not device and not names:
        raise CatalogError(f"{file}: no device is named; {WHICH}")
    return _imported(table, file, device or driver_device(names[0], file))


def _imported(table: Table, file: str, device: str) -> ImportedSystem:
    nvlink, devices = nvlink_of(device), len(table.devices)
    joined = hub_or_mesh(_widths(table), devices, nvlink, base_system(nvlink.base))
    base = base_system(nvlink.base if joined.whole else PCIE_BASE)
    nics = _used_interfaces(table)
    cables = [*joined.cables, *own_switches(list(_tree(table, nics, nvlink, base, device)))]
    check_cables(file, cables, devices)
    source = f"{Path(file).name}: nvidia-smi topo -m"
    fields = {"devices_per_node": (str(devices), source)}
    fields |= joined.fields(base, source, nvlink)
    fields |= _network_fields(len(nics), base, source)
    return ImportedSystem(
        origin=source,
        base=base.id,
        device=device,
        fields=fields,
        cables=cables,
        notes=[*joined.notes, *_interface_notes(table, nics)],
    )


def _widths(table: Table) -> dict[tuple[int, int], int]:
    """How many NVLinks lie between each pair of devices that has any."""
    return {
        (a, b): int(NVLINKS.fullmatch(cell)[1])  # type: ignore[index]
        for a, b in combinations(range(len(table.devices)), 2)
        if (cell := table.cells[table.devices[a], table.devices[b]]).startswith("NV")
    }


def _interface_notes(table: Table, used: Sequence[str]) -> Iterator[str]:
    """Which interfaces are left out, or that there are none."""
    left = [nic for nic in table.nics if nic not in used]
    if left:
        yield f"left out, as they share no switch with a device: {', '.join(left)}"
    if not used:
        yield "no interfaces are listed: one node only"


def _used_interfaces(table: Table) -> Sequence[str]:
    """Interfaces that share a switch with a device, else all."""
    near = [
        nic for nic in table.nics if any(table.cells[nic, gpu] in SWITCH for gpu in table.devices)
    ]
    return near or table.nics


def _network_fields(nics: int, base: System, source: str) -> dict[str, tuple[str, str]]:
    """The network's fields with their sources; none where a node has no interfaces."""
    if not nics:
        return {"network": ("null", "")}
    rate = base.network.nic_bandwidth if base.network else 25e9
    assumed = f"assumed as {base.id}: the table has no speeds"
    return {
        "network.nics_per_node": (str(nics), source),
        "network.nic_bandwidth": (written_rate(rate), assumed),
    }


def _tree(
    table: Table, nics: Sequence[str], nvlink: NVLink, base: System, device: str
) -> Iterator[Cable]:
    """Switches of the parts that PIX and PXB join, hosts of those that PHB and NODE join too."""
    parts = [*table.devices, *nics]
    part_of = {name: f"gpu:{index}" for index, name in enumerate(table.devices)}
    part_of |= {name: f"nic:{index}" for index, name in enumerate(nics)}
    switches = _groups(table, parts, SWITCH)
    hosts = _groups(table, parts, (*SWITCH, *BRIDGE))
    host_of = {name: f"host:{index}" for index, group in enumerate(hosts) for name in group}
    grace = device.startswith("gb")
    shared = [group for group in switches if len(group) > 1]
    for index, group in enumerate(shared):
        yield pcie_cable(f"pcie:{index}", host_of[group[0]], nvlink, base)
        for name in group:
            if not (grace and name in table.devices):
                yield pcie_cable(part_of[name], f"pcie:{index}", nvlink, base)
    for name in (name for group in switches for name in group):
        if grace and name in table.devices:
            rate = base.intra.c2c_bandwidth or 450e9
            yield Cable(part_of[name], host_of[name], "c2c", rate)
        elif not any(name in group for group in shared):
            yield pcie_cable(part_of[name], host_of[name], nvlink, base)
    for a, b in combinations(range(len(hosts)), 2):
        yield Cable(f"host:{a}", f"host:{b}", "cpu", CPU_LINK[nvlink.generation])


def _groups(table: Table, parts: Sequence[str], cells: Sequence[str]) -> list[list[str]]:
    """Parts that the cells join, directly or by others.

    NVLink hides what devices share, so hosts are told by the cores beside a device too; where
    nothing is told, half of the devices are on each of two sockets.
    """
    hosts = len(cells) > len(SWITCH)
    beside = table.affinity
    both = list(product(parts, parts))
    pairs = [
        (a, b)
        for a, b in both
        if table.cells[a, b] in cells or (hosts and a in beside and beside[a] == beside.get(b))
    ]
    known = any(not table.cells[pair].startswith(("NV", "X")) for pair in both)
    if hosts and not pairs and not known:
        half = (len(parts) + 1) // 2
        pairs = [(parts[0 if index < half else half], part) for index, part in enumerate(parts)]
    first = {name: name for name in parts}
    for a, b in pairs:
        old, new = first[b], first[a]
        first = {name: new if head == old else head for name, head in first.items()}
    groups: dict[str, list[str]] = {}
    for name in parts:
        groups.setdefault(first[name], []).append(name)
    return list(groups.values())
