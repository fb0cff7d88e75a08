r"""Reads what `nvidia-smi topo -m` prints.

        GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity
    GPU0  X   NV12  PXB   0-63          0
    GPU1 NV12  X    SYS   64-127        1
    NIC0 PXB  SYS    X

Cells: NV# bonded NVLinks; PIX and PXB within PCIe switches, PHB over a host bridge, NODE between
host bridges of a NUMA node, SYS (once SOC) between sockets. Columns are padded with tabs or spaces,
the header may be underlined by escapes, legends follow. There are no speeds: NVLink's follow from
the device, PCI Express is taken as x16 of its generation, interfaces as the like system's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from parsim.cluster.topology.node_cables import CPU_LINK
from parsim.errors import CatalogError, ScenarioError, shown
from parsim.units import written_rate

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"GPU\d+")
_HEADER = re.compile(r"\s*GPU\d+\b")
_NAMED = re.compile(r"^\s*GPU \d+: (.+?)(?: \(UUID.*)?$", re.MULTILINE)
_NVLINKS = re.compile(r"NV(\d+)")
_ROW = re.compile(r"^\s*GPU\d+\s+(X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b", re.MULTILINE)
_SWITCH, _BRIDGE = ("PIX", "PXB"), ("PHB", "NODE")
_CELLS = ("X", "NV#", *_SWITCH, *_BRIDGE, "SYS", "SOC")
_ALLOWED = f"allowed: {', '.join(_CELLS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The cells by (row, column), the names of devices and interfaces in their order.

    `affinity` is the column of cores beside a device, the same for those of one socket.
    """

    cells: Mapping[tuple[str, str], str]
    affinity: Mapping[str, str]
    devices: Sequence[str]
    nics: Sequence[str]


def looks_like_table(text: str) -> bool:
    """Whether a text has a row that begins with GPU0 and has cells."""
    return _ROW.search(_plain(text)) is not None


def read_table(text: str, file: str, device: str | None) -> ImportedSystem:
    """The node that a table shows.

    Raises:
        ScenarioError: a row or column missing or twice, an unknown cell, or cells that disagree.
        CatalogError: neither the text nor `device` says what the devices are.
    """
    table = _table(_plain(text), file)
    names = list(dict.fromkeys(_NAMED.findall(_plain(text))))
    if device is None and not names:
        raise CatalogError(f"{file}: no device is named; {WHICH}")
    return _imported(table, file, device or driver_device(names[0], file))


def _plain(text: str) -> str:
    return _ESCAPE.sub("", text).lstrip("\ufeff")


def _table(text: str, file: str) -> Table:
    lines = list(enumerate(text.splitlines(), 1))
    starts = [(number, line) for number, line in lines if _HEADER.match(line)]
    top, header = starts[0] if starts else (0, "")
    columns = _columns(header, file, top)
    cells: dict[tuple[str, str], str] = {}
    affinity: dict[str, str] = {}
    seen: dict[str, int] = {}
    for number, line in lines:
        words = line.split()
        if number <= top or not words or words[0] not in columns:
            continue
        if words[0] in seen:
            raise ScenarioError(
                f"{file}:{number}:1 {shown(words[0])} has a second row; "
                f"first on line {seen[words[0]]}"
            )
        seen[words[0]] = number
        cells.update(_row(words, columns, file, number, line))
        beyond = words[len(columns) + 1 :]
        if beyond and beyond[0][0].isdigit():
            affinity[words[0]] = beyond[0]
        if len(seen) == len(columns):
            break
    if missing := [name for name in columns if name not in seen]:
        raise ScenarioError(f"{file}:{top}:1 {shown(missing[0])} is a column without a row")
    _check_symmetric(cells, columns, seen, file)
    devices = [name for name in columns if _DEVICE.fullmatch(name)]
    return Table(
        cells=cells,
        affinity=affinity,
        devices=devices,
        nics=[name for name in columns if name not in devices],
    )


def _columns(header: str, file: str, number: int) -> list[str]:
    """Names of devices and interfaces; the affinities that follow have two words."""
    words = header.split()
    end = next((i for i, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
    if end == 0 or (len(words) > 1 and words[1] in _CELLS):
        raise ScenarioError(f"{file}:{max(number, 1)}:1 lacks the header GPU0 GPU1 ...")
    for index, word in enumerate(words[:end]):
        if word in words[:index]:
            column = header.rindex(word) + 1
            raise ScenarioError(f"{file}:{number}:{column} {shown(word)} is a column twice")
    return words[:end]


def _row(
    words: Sequence[str], columns: Sequence[str], file: str, number: int, line: str
) -> Iterator[tuple[tuple[str, str], str]]:
    name = words[0]
    for index, column in enumerate(columns, 1):
        cell = words[index] if index < len(words) else ""
        if (cell == "X") != (name == column) or not _known(cell):
            where = line.find(cell, line.find(name) + len(name)) + 1 if cell else len(line) + 1
            text = f"'{shown(cell)}'" if cell else "nothing"
            why = "X stands where row and column are one" if _known(cell) else _ALLOWED
            raise ScenarioError(
                f"{file}:{number}:{where} {shown(name)} has {text} under {shown(column)}; {why}; "
                f"a column may be missing"
            )
        yield (name, column), "SYS" if cell == "SOC" else cell


def _known(cell: str) -> bool:
    return cell in _CELLS[2:] or cell == "X" or _NVLINKS.fullmatch(cell) is not None


def _check_symmetric(
    cells: Mapping[tuple[str, str], str],
    columns: Sequence[str],
    lines: Mapping[str, int],
    file: str,
) -> None:
    for first, second in combinations(columns, 2):
        one_way, back = cells[first, second], cells[second, first]
        if one_way != back:
            row, column = shown(second), shown(first)
            raise ScenarioError(
                f"{file}:{lines[second]}:1 {row} has {back} under {column}, "
                f"but {column} has {one_way} under {row}; both are one way"
            )


def _imported(table: Table, file: str, device: str) -> ImportedSystem:
    nvlink = nvlink_of(device)
    devices = len(table.devices)
    widths = {
        (a, b): int(_NVLINKS.fullmatch(cell)[1])  # type: ignore[index]
        for a, b in combinations(range(devices), 2)
        if (cell := table.cells[table.devices[a], table.devices[b]]).startswith("NV")
    }
    joined = hub_or_mesh(widths, devices, nvlink, base_system(nvlink.base))
    base = base_system(nvlink.base if joined.whole else PCIE_BASE)
    nics = _used_interfaces(table)
    left = [nic for nic in table.nics if nic not in nics]
    cables = [*joined.cables, *own_switches(list(_tree(table, nics, nvlink, base, device)))]
    check_cables(file, cables, devices)
    notes = list(joined.notes)
    if left:
        notes.append(f"left out, as they share no switch with a device: {', '.join(left)}")
    if not nics:
        notes.append("no interfaces are listed: one node only")
    source = f"{Path(file).name}: nvidia-smi topo -m"
    fields = {"devices_per_node": (str(devices), source)}
    fields |= joined.fields(base, source, nvlink)
    fields |= _network_fields(len(nics), base, source)
    return ImportedSystem(
        origin=source, base=base.id, device=device, fields=fields, cables=cables, notes=notes
    )


def _used_interfaces(table: Table) -> Sequence[str]:
    """Interfaces that share a switch with a device, else all."""
    near = [
        nic for nic in table.nics if any(table.cells[nic, gpu] in _SWITCH for gpu in table.devices)
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
    switches = _groups(table, parts, _SWITCH)
    hosts = _groups(table, parts, (*_SWITCH, *_BRIDGE))
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
    hosts = len(cells) > len(_SWITCH)
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
