"""An earlier calibration's file: what it holds, and whether it belongs to this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from executor.calibration.fitting.constants import DEVICE_CONSTANTS
from parsim.cluster.document import read_document
from parsim.cluster.entries import read_entry
from parsim.cluster.hardware import Device, System
from parsim.cluster.measured.curves import COLLECTIVES
from parsim.cluster.reader import Catalog, load_catalog
from parsim.errors import InputError

_SOURCE = re.compile(
    r"measured (?P<day>\d{4}-\d\d-\d\d) by parsim calibrate on (?P<name>.+?), (?P<used>[^,]+), "
    r"torch (?P<torch>[^,;]+)(?:, CUDA [^,;]+)?(?:, drift (?P<drift>[\d.]+) %)?[^;]*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One file: its entries, the ids that they start from, and where its numbers come from."""

    file: str
    device: Device
    system: System | None
    base: tuple[str, str]
    sources: tuple[str, ...]

    @property
    def latest(self) -> str:
        """Day of the newest measurement."""
        return max(part_of(source, "day") for source in self.sources)

    def only(self, part: str) -> str:
        """What all its sources agree in: name or used (the precision)."""
        return part_of(self.sources[0], part)


def part_of(source: str, part: str) -> str:
    """What a file says of its source: day, name, used (the precision), torch, drift (percent).

    Empty where it says nothing.
    """
    match = _SOURCE.fullmatch(source)
    return (match[part] or "") if match else ""


def read_calibration(file: Path) -> Calibration:
    """Read a file of `parsim calibrate`.

    Raises:
        ScenarioError: it is no catalog file, or holds impossible numbers.
        InputError: it holds no calibrated device, or does not say how it was measured.
    """
    known, loaded = load_catalog(), load_catalog([file])
    device = _new_device(file, known, loaded)
    systems = [
        entry
        for name, entry in loaded.systems.items()
        if name not in known.systems and entry.device.id == device.id
    ]
    system = systems[0] if systems else None
    ids = {"devices": device.id, "systems": system.id if system else ""}
    return Calibration(
        file=str(file),
        device=device,
        system=system,
        sources=_sources(file, device),
        base=_parents(file, ids),
    )


def _new_device(file: Path, known: Catalog, loaded: Catalog) -> Device:
    """The one device of the file, which the catalog by itself does not know."""
    new = [name for name in loaded.devices if name not in known.devices]
    if len(new) != 1 or not loaded.devices[new[0]].calibrated:
        raise InputError(
            f"{file} holds no calibrated device; give a file that `parsim calibrate --out` wrote"
        )
    return loaded.devices[new[0]]


def _sources(file: Path, device: Device) -> tuple[str, ...]:
    """When and on what the device was measured, once for each calibration in the file."""
    text = device.sources.get(DEVICE_CONSTANTS[0], "")
    sources = tuple(entry.group(0).strip() for entry in _SOURCE.finditer(text))
    if not sources:
        raise InputError(
            f"{file}: {device.id}.{DEVICE_CONSTANTS[0]} does not say when and on what it was "
            f"measured; give a file that `parsim calibrate --out` wrote"
        )
    return sources


def _parents(file: Path, ids: Mapping[str, str]) -> tuple[str, str]:
    """What the entries of a file start from."""
    document, parents = read_document(file), {"devices": "", "systems": ""}
    for section, _, node in document.items(document.root, ""):
        for name, key, value in document.items(node, section):
            if name == ids[section]:
                parents[section] = read_entry(document, section, name, key, value).parent or ""
    return parents["devices"], parents["systems"]


def compatible(old: Calibration, name: str, used: str, version: str) -> list[str]:
    """Notes on what differs between a file and another measurement.

    Raises:
        InputError: another device or precision: their times do not belong together.
    """
    for part, now, way, what in (("name", name, "on", "device"), ("used", used, "in", "precision")):
        if old.only(part) != now:
            raise InputError(
                f"{old.file} was measured {way} {old.only(part)}, this is {now}; only "
                f"calibrations of one {what} can be merged"
            )
    others = ", ".join(sorted({part_of(source, "torch") for source in old.sources} - {version}))
    note = f"{old.file} was measured with torch {others}, this is {version}: kernels may differ"
    return [note] if others else []


def where_of(kind: str, point: Sequence[float]) -> tuple[float, ...]:
    """Coordinates of a residual's point; a collective without ranks was measured between two."""
    where = tuple(float(x) for x in point[:-1])
    return (*where, 2.0) if kind in COLLECTIVES and len(where) == 1 else where
