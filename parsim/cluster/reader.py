"""The catalog: devices and systems that parsim knows, and the reader of users' own files.

A file holds `devices:` and `systems:`; each entry is an id with its fields, or `from: ID` with the
fields that differ. Later files win over earlier ones. No pydantic here: a table of fields says as
much, points at the very character, and spares every command its import (30 ms).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from parsim.cluster.document import Document, node_of, parse_document, plain_of, read_document
from parsim.cluster.entries import Entry, read_entry
from parsim.cluster.fields import FIELDS
from parsim.cluster.hardware import Device, System
from parsim.cluster.records import NOUNS, Fields, build_device, build_system, unknown
from parsim.errors import CatalogError, alternatives, matching, shown
from parsim.files import OnDemand, entry_texts
from parsim.parsed import ParsedTexts

_Found = tuple[Entry, Fields]
_Layers = Mapping[str, Mapping[str, _Found]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All known devices and systems by id."""

    devices: Mapping[str, Device]
    systems: Mapping[str, System]

    def device(self, id: str) -> Device:
        """Look a device up.

        Raises:
            CatalogError: there is no such device; the message lists those there are.
        """
        return self.devices[_id_of("device", id, self.devices)]

    def system(self, id: str, device: str | None = None) -> System:
        """Look a system up, with another kind of device in it if `device` is given.

        Raises:
            CatalogError: there is no such system or device; the message lists those there are.
        """
        system = self.systems[_id_of("system", id, self.systems)]
        return system if device is None else replace(system, device=self.device(device))


def load_catalog(extra: Sequence[Path] = ()) -> Catalog:
    """Read the built-in catalog, and users' files over it, the last one winning.

    Built-in entries are read when they are first asked for; users' files at once, so that their
    mistakes are told at once.

    Raises:
        ScenarioError: a user's file is wrong; the message starts with file:line:column.
    """
    if not extra:
        return _built_in_catalog()
    layers = _built_in_layers()
    written: list[tuple[str, str]] = []
    for path in extra:
        layer = _read_layer(read_document(path), layers)
        layers = {section: _overlay(layer.get(section, {}), layers[section]) for section in FIELDS}
        written += [(section, name) for section, entries in layer.items() for name in entries]
    catalog = _build(layers)
    for section, name in written:
        _ = catalog.devices[name] if section == "devices" else catalog.systems[name]
    return catalog


@lru_cache(maxsize=1)
def _built_in_catalog() -> Catalog:
    return _build(_built_in_layers())


@lru_cache(maxsize=1)
def _built_in_layers() -> _Layers:
    return {section: _built_in_layer(section) for section in FIELDS}


def _built_in_layer(section: str) -> Mapping[str, _Found]:
    """One shipped file, each entry parsed by itself when it is needed.

    Composing both files takes 40 ms and most commands need two entries of them.
    """
    from importlib.resources import files

    file = files("parsim.cluster") / "catalog" / f"{section}.yaml"
    blocks = entry_texts(file.read_text(encoding="utf-8"), indent=2)
    parsed = ParsedTexts(
        file, blocks.values(), lambda text: plain_of(parse_document(text, file.name).root)
    )

    def entry(id: str) -> Entry:
        document = Document(file.name, node_of(parsed(blocks[id])))
        ((_, key, node),) = document.items(document.root, section)
        return read_entry(document, section, id, key, node)

    entries = OnDemand(blocks, entry)
    return OnDemand(blocks, lambda id: (entries[id], _inherit(entries[id], entries, {})))


def _read_layer(document: Document, below: _Layers) -> dict[str, dict[str, _Found]]:
    """Read one user's file, each entry completed by what its `from:` names here or below."""
    if document.root is None:
        return {}
    layer = {}
    for section, key, node in document.items(document.root, ""):
        if section not in FIELDS:
            message = f"unknown field '{shown(section)}'{alternatives(section, FIELDS)}"
            raise document.error(key, section, message)
        entries = {
            name: read_entry(document, section, name, name_node, value)
            for name, name_node, value in document.items(node, section)
        }
        layer[section] = {
            name: (entry, _inherit(entry, entries, below[section]))
            for name, entry in entries.items()
        }
    return layer


def _overlay(upper: Mapping[str, _Found], lower: Mapping[str, _Found]) -> Mapping[str, _Found]:
    names = dict.fromkeys([*lower, *upper])
    return OnDemand(names, lambda name: upper[name] if name in upper else lower[name])


def _inherit(entry: Entry, entries: Mapping[str, Entry], below: Mapping[str, _Found]) -> Fields:
    """Follow `from:` to its root and lay the fields over each other, the child's on top."""
    chain, fields = _ancestry(entry, entries, below)
    for link in reversed(chain):
        if "interference" in link.fields:  # measured anew, so on links of another rate
            fields.pop("interference_rate", None)
        for name, reading in link.fields.items():
            fields.pop(name, None)
            if reading is not None:
                fields[name] = reading
    return fields


def _ancestry(
    entry: Entry, entries: Mapping[str, Entry], below: Mapping[str, _Found]
) -> tuple[list[Entry], Fields]:
    """The entries of this file from child to root, and the fields the root starts from.

    `from: x` inside the entry x means the x of the files before.
    """
    chain = [entry]
    while (written := chain[-1].parent) is not None:
        last = chain[-1]
        parent = matching(written, dict.fromkeys([*entries, *below])) or written
        if parent in entries and parent != last.id:
            if entries[parent] in chain:
                circle = " -> ".join([*(link.id for link in chain), parent])
                raise last.error_at("from", f"goes round in a circle: {circle}")
            chain.append(entries[parent])
        elif parent in below:
            return chain, dict(below[parent][1])
        else:
            others = [name for name in entries if name != last.id]
            message = unknown(NOUNS[entry.section], parent, [*below, *others])
            raise last.error_at("from", message)
    return chain, {}


def _build(layers: _Layers) -> Catalog:
    device_entries, system_entries = layers["devices"], layers["systems"]
    devices = OnDemand(device_entries, lambda name: build_device(*device_entries[name]))
    systems = OnDemand(system_entries, lambda name: build_system(*system_entries[name], devices))
    return Catalog(devices=devices, systems=systems)


def _id_of(noun: str, word: str, names: Iterable[str]) -> str:
    """The name that a user means, whatever its case."""
    name = matching(word, names)
    if name is None:
        raise CatalogError(unknown(noun, word, names))
    return name
