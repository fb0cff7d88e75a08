"""Reads a saved timeline; a file that somebody edited or cut short is told where it is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from parsim.errors import InputError, shown
from parsim.files import read_json
from parsim.timelines.timeline import SCHEMA_VERSION, Timeline

T = TypeVar("T")

_SPAN: Final[Mapping[str, type]] = {
    "rank": int,
    "stream": str,
    "kind": str,
    "start_s": float,
    "end_s": float,
    "stage": int,
    "microbatch": int,
    "exposed_s": float,
}
_FLOW: Final[Mapping[str, type]] = {"source": int, "target": int}
_FORMS: Final[Mapping[type, str]] = {int: "a whole number", float: "a finite number", str: "a text"}
_META: Final[Mapping[str, type]] = {
    "step_time_s": float,
    "bubble_fraction": float,
    "parameters": int,
}
_BY_RANK: Final[Mapping[str, type]] = {"rank_labels": str, "pipeline_rank": int, "pipeline": int}


def load_timeline(path: Path) -> Timeline:
    """Read a timeline that `Timeline.save` or `parsim simulate --timeline` wrote.

    Raises:
        InputError: the file is missing, unreadable, not JSON or not a timeline of this version;
            the message starts with the file.
    """
    document = _document(path)
    if isinstance(document, dict) and "traceEvents" in document:
        raise InputError(
            f"{path}: a trace for Perfetto, not a timeline; "
            f"write that with `parsim simulate SCENARIO --timeline FILE.json`"
        )
    if isinstance(document, dict) and {"plan", "measured", "verify"} <= document.keys():
        raise InputError(
            f"{path}: what `parsim run` measured, not a timeline; give the timeline.json beside it"
        )
    if not isinstance(document, dict):
        raise InputError(
            f"{path}: not a parsim timeline: {shown(repr(document))} is no JSON object"
        )
    try:
        if (document.get("kind"), document.get("schema_version")) == ("timeline", SCHEMA_VERSION):
            _check_shape(document)
        return Timeline.from_json(document)
    except InputError as wrong:
        raise InputError(f"{path}: {wrong}") from None


def is_timeline(path: Path) -> bool:
    """Whether a file says that it is a timeline, be it saved or a trace; scenarios can be JSON.

    Of a trace `load_timeline` says what to use in its place.
    """
    if path.suffix != ".json":
        return False
    try:
        document = _document(path)
    except InputError:
        return False
    if not isinstance(document, dict):
        return False
    return document.get("kind") == "timeline" or "traceEvents" in document


def _document(path: Path) -> object:
    if path.suffix in (".yaml", ".yml"):
        raise InputError(
            f"{path}: a scenario, not a timeline; "
            f"write its timeline with `parsim simulate {path} --timeline FILE.json`"
        )
    document: object = read_json(path, near=(".json",))
    return document


def _checked(where: str, value: object, form: type[T]) -> T:
    """The value, which must have the form; a float may be written as a whole number."""
    fits = type(value) is form or (form is float and type(value) is int)
    if isinstance(value, int | float) and not -1e300 < value < 1e300:  # NaN is not in between
        fits = False
    if not fits:
        raise InputError(f"{where} must be {_FORMS[form]}, got {shown(repr(value))}")
    return cast(T, value)


def _items(document: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """The items of a list of the document, each with its place."""
    if not isinstance(document.get(name), list):
        raise InputError(f"{name} must be a list, got {shown(repr(document.get(name)))}")
    for i, item in enumerate(document[name]):
        yield f"{name}[{i}]", item


def _checked_row(where: str, row: object, columns: Mapping[str, type]) -> list[Any]:
    """The values of a row that has one of the right form for each column."""
    if not isinstance(row, list) or len(row) != len(columns):
        raise InputError(
            f"{where} must be a list of {len(columns)} values ({', '.join(columns)}), "
            f"got {shown(repr(row))}"
        )
    pairs = zip(columns.items(), row, strict=True)
    return [_checked(f"{where} {name}", value, form) for (name, form), value in pairs]


def _check_shape(document: Mapping[str, Any]) -> None:
    """Refuse a document of which `Timeline.from_json` could not make sense."""
    if document.get("columns") != list(_SPAN):
        raise InputError(
            f"columns must be {', '.join(_SPAN)}; got {shown(repr(document.get('columns')))}"
        )
    count = 0
    for where, row in _items(document, "spans"):
        _check_span(where, row)
        count += 1
    for where, row in _items(document, "flows"):
        for number in _checked_row(where, row, _FLOW):
            _check_number(where, number, count)
    for where, curve in _items(document, "memory"):
        _check_curve(where, curve)
    for where, number in _items(document, "critical"):
        _check_number(where, _checked(where, number, int), count)
    _check_meta(document.get("meta"))


def _check_span(where: str, row: object) -> None:
    rank, _, _, start, end = _checked_row(where, row, _SPAN)[:5]
    if rank < 0:
        raise InputError(f"{where} rank={rank} must be at least 0")
    if end < start:
        raise InputError(f"{where} ends before it starts: start_s={start!r}, end_s={end!r}")


def _check_number(where: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise InputError(f"{where} names span {number} of {count}; the first is 0")


def _check_curve(where: str, curve: object) -> None:
    if not isinstance(curve, dict):
        raise InputError(f"{where} must be an object, got {shown(repr(curve))}")
    _checked(f"{where}.rank", curve.get("rank"), int)
    counts = []
    _checked(f"{where}.static_bytes", curve.get("static_bytes", 0.0), float)
    parts = tuple(key for key in ("activations_bytes", "old_weights_bytes") if key in curve)
    for name in ("times_s", "allocated_bytes", *parts):
        values = [_checked(f"{where}.{spot}", value, float) for spot, value in _items(curve, name)]
        counts.append(len(values))
    for name, count in zip(("allocated_bytes", *parts), counts[1:], strict=True):
        if count != counts[0]:
            raise InputError(f"{where} has {counts[0]} times_s and {count} {name}; give as many")


def _check_meta(meta: object) -> None:
    """What reports read of `meta` must have the form that they expect."""
    if not isinstance(meta, dict):
        raise InputError(f"meta must be an object, got {shown(repr(meta))}")
    for name, form in _META.items():
        if meta.get(name) is not None:
            _checked(f"meta.{name}", meta[name], form)
    for name, form in _BY_RANK.items():
        for rank, value in _entries(meta, "meta", name):
            if not rank.isdecimal():
                raise InputError(f"meta.{name} must have ranks as keys, got {shown(repr(rank))}")
            _checked(f"meta.{name}.{rank}", value, form)
    spread = dict(_entries(meta, "meta", "spread"))
    for name in spread:
        for key, value in _entries(spread, "meta.spread", name):
            _checked(f"meta.spread.{name}.{key}", value, float)
    peak = meta.get("peak_allocated_bytes", [])
    for value in peak if isinstance(peak, list) else [peak]:
        _checked("meta.peak_allocated_bytes", value, float)


def _entries(block: Mapping[str, Any], where: str, name: str) -> Iterable[tuple[str, Any]]:
    """Keys and values of an object in a block; none where the block lacks it."""
    entries = block.get(name, {})
    if not isinstance(entries, dict):
        raise InputError(f"{where}.{name} must be an object, got {shown(repr(entries))}")
    return list(entries.items())
