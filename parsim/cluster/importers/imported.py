"""What an importer found, what the catalog knows about it, and both as a catalog file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from parsim.cluster.cables import missing_devices, parts_apart
from parsim.cluster.device_names import device_named
from parsim.cluster.hardware import Cable, Generation, System
from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError, InputError, ScenarioError, shown
from parsim.units import written_rate, written_time

Field = tuple[str, str]
"""A value as a catalog file writes it, and its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSystem:
    """One kind of node: the catalog's system that it is like, and what is known to differ.

    `fields` are flat: intra.bandwidth. `notes` go into the file as comments and to the user.
    """

    origin: str
    base: str
    device: str
    fields: Mapping[str, Field]
    cables: Sequence[Cable] = ()
    notes: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class NVLink:
    """NVLinks of a generation: bytes/s of one link, one direction, and links of a device."""

    generation: Generation
    link: float
    links: int
    base: str


NVLINKS: Mapping[str, NVLink] = {
    "v100": NVLink(generation="volta", link=25e9, links=6, base="dgx-1v"),
    "a100": NVLink(generation="ampere", link=25e9, links=12, base="dgx-a100"),
    "h100": NVLink(generation="hopper", link=25e9, links=18, base="dgx-h100"),
    "a800": NVLink(generation="ampere", link=25e9, links=8, base="hgx-a800"),
    "h800": NVLink(generation="hopper", link=25e9, links=8, base="hgx-h800"),
    "h20": NVLink(generation="hopper", link=25e9, links=18, base="hgx-h20"),
    "h200": NVLink(generation="hopper", link=25e9, links=18, base="hgx-h200"),
    "b200": NVLink(generation="blackwell", link=50e9, links=18, base="dgx-b200"),
    "b300": NVLink(generation="blackwell", link=50e9, links=18, base="dgx-b300"),
    "gb200": NVLink(generation="blackwell", link=50e9, links=18, base="gb200-nvl72"),
    "gb300": NVLink(generation="blackwell", link=50e9, links=18, base="gb300-nvl72"),
}
"""By the first word of a device's id. Rates: NVIDIA datasheets, half of both directions' figure."""
PCIE_BASE = "a100-pcie-node"
WHICH = "say which it is, e.g. --device h100-sxm-80gb"
"""What a user can do about a device that the file does not name well enough."""


def unnamed(file: str) -> CatalogError:
    """The error of a file that names no device, where no option names it either."""
    return CatalogError(f"{file}: names no device; {WHICH}")


def driver_device(name: str, file: str) -> str:
    """The catalog's id of the device that a file names as its driver does.

    Raises:
        CatalogError: the file, the nearest devices, and how to say which it is.
    """
    try:
        return device_named(name)
    except CatalogError as error:
        raise CatalogError(f"{file}: {error}; {WHICH}") from None


def nvlink_of(device: str) -> NVLink:
    """NVLinks of a device of the catalog.

    Raises:
        CatalogError: the catalog has no such device, or its NVLinks are not known.
    """
    known = load_catalog().device(device).id
    family = known.partition("-")[0]
    if family not in NVLINKS:
        raise CatalogError(
            f"the NVLinks of device {known} are not known; known: {', '.join(NVLINKS)}"
        )
    return NVLINKS[family]


def base_system(id: str) -> System:
    """A system of the catalog, whose efficiencies and overheads an import takes over."""
    return load_catalog().system(id)


def check_cables(file: str, cables: Sequence[Cable], devices: int) -> None:
    """Refuse a graph in which parts are not joined or devices have no cable.

    Raises:
        ScenarioError: the file and what is apart.
    """
    missing, _ = missing_devices(cables, devices)
    if missing:
        raise ScenarioError(f"{file}:1:1 has no link of {missing[0]}")
    if apart := parts_apart(cables):
        raise ScenarioError(
            f"{file}:1:1 is disconnected: nothing leads from {cables[0].source} to {apart[0]}"
        )


_ID = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def catalog_text(imported: ImportedSystem, name: str, *, replace: bool = False) -> str:
    """A catalog file with one system, which a scenario names in cluster.catalog.

    Raises:
        InputError: the name is no id, or that of a system of the catalog unless it may be replaced.
    """
    if not _ID.fullmatch(name):
        raise InputError(
            f"--as '{shown(name)}' is no id; allowed: small letters and digits, joined by - or ., "
            f"e.g. my-node"
        )
    if not replace and name in load_catalog().systems:
        raise InputError(
            f"--as {name} is a system of parsim's catalog, whose place this one would take in "
            f"every scenario that names the file; use another name, e.g. --as my-{name}, or say "
            f"--replace"
        )
    return "\n".join([*_head(imported), "systems:", f"  {name}:", *_body(imported, name), ""])


def _head(imported: ImportedSystem) -> Iterator[str]:
    yield f"# Imported from {imported.origin}."
    yield f"# What it does not state is taken over from the catalog's {imported.base}."
    for note in imported.notes:
        yield f"# Note: {note}"
    yield "# A scenario uses it with: cluster: {catalog: [this file], system: ...}"
    yield ""


def _body(imported: ImportedSystem, name: str) -> Iterator[str]:
    yield f"    from: {imported.base}"
    yield f"    name: {json.dumps(name)}"
    yield f"    device: {imported.device}"
    group = ""
    for key, (value, source) in imported.fields.items():
        head, dot, inner = key.rpartition(".")
        if head != group and dot:
            yield f"    {head}:"
        group = head
        written = f"[{value}, {json.dumps(source)}]" if source else value
        yield f"    {'  ' if dot else ''}{inner}: {written}"
    if imported.cables:
        yield "    topology:"
        for cable in imported.cables:
            yield f"      - {_cable(cable)}"


def _cable(cable: Cable) -> str:
    words = [
        f"from: {cable.source}, to: {cable.target}, class: {cable.link_class}",
        f"bandwidth: {written_rate(cable.bandwidth)}",
    ]
    if cable.latency:
        words.append(f"latency: {written_time(cable.latency)}")
    if cable.efficiency != 1.0:
        words.append(f"efficiency: {cable.efficiency:.6g}")
    return "{" + ", ".join(words) + "}"
