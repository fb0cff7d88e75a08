"""Write fitted constants into the catalog's YAML text: [value, source] pairs, nothing else.

The file is composed only to learn where each pair stands; the text between stays as it is, with
its comments, quotes and order. A pair keeps its unit, and of its source what is not an earlier
fit. A constant that an entry inherits becomes a line of its own at the entry's end.

    call_overhead: [20.9us, "make fit, 2026-11-21: reports/fit.md; NCCL 16 us"]
    call_overhead: [21.4us, "make fit, 2026-12-01: reports/fit.md; NCCL 16 us"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from parsim.cluster.document import Node, parse_document
from parsim.errors import CatalogError
from parsim.fitting.constants.address import KINDS, PAIR, Address, written

_NUMBER = re.compile(r"([-+0-9.eE]+?)([num]?s)?")
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_FIT = re.compile(r"\b(make fit(?!-)|step fits?|joint fit)\b|reports/fit\.md")


def write_values(values: Mapping[Address, float], date: str, package: Path) -> list[Path]:
    """Change the catalog files below the package's folder; the files that changed."""
    changed = []
    for kind, (name, _) in KINDS.items():
        ours = {address: value for address, value in values.items() if address.kind == kind}
        path = package / name
        before = path.read_text(encoding="utf-8")
        text = before
        for address, value in ours.items():
            text = with_value(text, address, value, date)
        if text != before:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    written.cache_clear()
    return changed


def with_value(text: str, address: Address, value: float, date: str) -> str:
    """The YAML text with one constant changed.

    Raises:
        CatalogError: the entry is not in the text, or the field is no [value, source] pair.
    """
    entry = _entry(text, address)
    pair = _pair(entry, address)
    if pair is None:
        return _appended(text, entry, address, value, date)
    number, source = _number(pair.value[0], address), pair.value[1]
    kept = [part for part in str(source.value).split("; ") if not _FIT.search(part)]
    sources = "; ".join([f"make fit, {date}: reports/fit.md", *kept])
    old = text[_start(number) : _end(number)]
    # the source stands behind the number: replaced first, so that places before it hold
    text = text[: _start(source)] + _quoted(sources) + text[_end(source) :]
    return text[: _start(number)] + _as_written(old, value) + text[_end(number) :]


def _entry(text: str, address: Address) -> Node:
    name, section = KINDS[address.kind]
    node: Node = parse_document(text, name).root
    for word in filter(None, (section, address.entry)):
        child = _child(node, word)
        if child is None:
            raise CatalogError(f"{address}: no entry {word!r} in {name}")
        node = child
    return node


def _child(node: Node, word: str) -> Node | None:
    """The value under a key of a mapping node."""
    return next((value for key, value in node.value if key.value == word), None)


def _pair(entry: Node, address: Address) -> Node | None:
    """The node of the [value, source] pair; None where the entry does not write the field."""
    node: Node | None = entry
    for word in address.path:
        if node is None or node.id == "sequence":
            break
        node = _child(node, word)
    if node is None:
        return None
    if node.id != "sequence" or len(node.value) != 2:
        raise CatalogError(f"{address}: is not written as [value, source]")
    return node


def _number(value: Node, address: Address) -> Node:
    """The scalar inside a pair's value: itself, or a member of `{h100: [forward, backward]}`."""
    node: Node | None = value
    for word in address.path[1:]:
        if node is None or node.id == "scalar":
            break
        node = node.value[PAIR[word]] if node.id == "sequence" else _child(node, word)
    if node is None or node.id != "scalar":
        raise CatalogError(f"{address}: no such number in its pair")
    return node


def _start(node: Node) -> int:
    return int(node.start_mark.index)


def _end(node: Node) -> int:
    return int(node.end_mark.index)


def _as_written(old: str, value: float) -> str:
    """The value in the unit, or with the exponent, of the text that it replaces."""
    match = _NUMBER.fullmatch(old)
    if match is None:
        raise CatalogError(f"{old!r} is no number that a fit can replace")
    unit = match[2] or ""
    exponent = match[1].lower().partition("e")[2]
    scale = _UNITS[unit] * (10.0 ** int(exponent) if exponent else 1.0)
    return f"{_plain(value / scale)}{'e' + exponent if exponent else ''}{unit}"


def _plain(value: float) -> str:
    return f"{float(f'{value:.3g}'):.10g}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _appended(text: str, entry: Node, address: Address, value: float, date: str) -> str:
    """A line behind the last one of the entry; only a field that stands at the entry's own level.

    An entry's node ends where the next one begins, so the line goes before what stands between.
    """
    if len(address.path) > 1:
        raise CatalogError(f"{address}: the entry inherits it; write the field there first")
    start, end = _start(entry), _end(entry)
    last = start + len(text[start:end].rstrip())
    # a comment or blank lines before the next entry belong to that entry
    lines = text[start:last].splitlines()
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        last -= len(lines.pop()) + 1
    indent = " " * entry.start_mark.column
    line = f'\n{indent}{address.field}: [{_plain(value)}, "make fit, {date}: reports/fit.md"]'
    return text[:last] + line + text[last:]
