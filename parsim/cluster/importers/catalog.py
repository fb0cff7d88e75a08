"""Writes what an importer found as a catalog file: a system, its sources, its cables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from parsim.cluster.hardware import Cable
from parsim.cluster.importers.found import Found, rate_text, time_text
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError

_ID = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def check_name(name: str, *, replace: bool = False) -> None:
    """Refuse a name that is no id, or that of a system of the catalog unless it may be replaced.

    Raises:
        InputError: the name and what is allowed.
    """
    if not _ID.fullmatch(name):
        raise InputError(
            f"--as '{name}' is no id; allowed: small letters and digits, joined by - or ., "
            f"e.g. my-node"
        )
    if not replace and name in load_catalog().systems:
        raise InputError(
            f"--as {name} is a system of parsim's catalog, whose place this one would take in "
            f"every scenario that names the file; use another name, e.g. --as my-{name}, or say "
            f"--replace"
        )


def catalog_text(found: Found, name: str, *, replace: bool = False) -> str:
    """A catalog file with one system, which a scenario names in cluster.catalog.

    Raises:
        InputError: as `check_name`.
    """
    check_name(name, replace=replace)
    return "\n".join([*_head(found), "systems:", f"  {name}:", *_body(found, name), ""])


def _head(found: Found) -> Iterator[str]:
    yield f"# Imported from {found.origin}."
    yield f"# What it does not state is taken over from the catalog's {found.base}."
    for note in found.notes:
        yield f"# Note: {note}"
    yield "# A scenario uses it with: cluster: {catalog: [this file], system: ...}"
    yield ""


def _body(found: Found, name: str) -> Iterator[str]:
    yield f"    from: {found.base}"
    yield f"    name: {json.dumps(name)}"
    yield f"    device: {found.device}"
    group = ""
    for field, (value, source) in found.fields.items():
        head, dot, inner = field.rpartition(".")
        if head != group and dot:
            yield f"    {head}:"
        group = head
        written = f"[{value}, {json.dumps(source)}]" if source else value
        yield f"    {'  ' if dot else ''}{inner}: {written}"
    if found.cables:
        yield "    topology:"
        for one in found.cables:
            yield f"      - {_cable(one)}"


def _cable(one: Cable) -> str:
    words = [
        f"from: {one.source}, to: {one.target}, class: {one.link_class}",
        f"bandwidth: {rate_text(one.bandwidth)}",
    ]
    if one.latency:
        words.append(f"latency: {time_text(one.latency)}")
    if one.efficiency != 1.0:
        words.append(f"efficiency: {one.efficiency:.6g}")
    return "{" + ", ".join(words) + "}"
