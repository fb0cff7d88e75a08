"""Writes what an importer found as a catalog file: a system, its sources, its cables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from parsim.cluster.hardware import Cable
from parsim.cluster.importers.imported import ImportedSystem, rate_text, time_text
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError, shown

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
    for field, (value, source) in imported.fields.items():
        head, dot, inner = field.rpartition(".")
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
        f"bandwidth: {rate_text(cable.bandwidth)}",
    ]
    if cable.latency:
        words.append(f"latency: {time_text(cable.latency)}")
    if cable.efficiency != 1.0:
        words.append(f"efficiency: {cable.efficiency:.6g}")
    return "{" + ", ".join(words) + "}"
