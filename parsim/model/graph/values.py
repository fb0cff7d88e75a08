"""Values of a model file: sizes, numbers, switches and text, checked where they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any

from parsim.errors import ModelError, shown

MOST_SIZE = 10**9
"""No size of an operation is larger."""

_MAY_BE_ZERO = frozenset(
    {"padding", "rows", "columns", "positions", "buckets", "parameters", "kept_values"}
)
"""Numbers of operations that may be 0."""


def value_of(field: Field[Any], value: object) -> object:
    """The value of an operation's field, of the field's kind.

    Raises:
        ModelError: it is of another kind, or out of range.
    """
    kind = str(field.type)
    if kind in _READERS:
        return _READERS[kind](field.name, value)
    sizes = sizes_of(field.name, [value, value] if isinstance(value, int) else value)
    if kind == "Pair" and len(sizes) != 2:
        raise ModelError(f"{field.name}={shown(value)} must be two sizes: [rows, columns]")
    return sizes


def inputs_of(given: object) -> dict[str, tuple[int, ...]]:
    """Sizes by name of what enters a graph beside its input.

    Raises:
        ModelError: they are not written so.
    """
    if not isinstance(given, dict):
        raise ModelError("further_inputs must be a mapping of names to sizes, such as {mask: [16]}")
    return {str(name): sizes_of(f"further_inputs.{name}", sizes) for name, sizes in given.items()}


def sizes_of(name: str, value: object) -> tuple[int, ...]:
    """A list of sizes.

    Raises:
        ModelError: it is empty or none, or a size is wrong.
    """
    if not isinstance(value, list) or not value:
        raise ModelError(f"{name}={shown(value)} must be a list of sizes, such as [3, 224, 224]")
    return tuple(size_of(name, size) for size in value)


def size_of(name: str, value: object) -> int:
    """A whole number, from 1 where it may not be 0.

    Raises:
        ModelError: it is none, or out of range.
    """
    least = 0 if name in _MAY_BE_ZERO else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_SIZE:
        raise ModelError(
            f"{name}={shown(value)} must be a whole number from {least} to {MOST_SIZE:,}"
        )
    return value


def text_of(name: str, value: object) -> str:
    """Words, such as a name.

    Raises:
        ModelError: it is something else.
    """
    if not isinstance(value, str):
        raise ModelError(f"{name}={shown(value)} must be text")
    return value


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ModelError(f"{name}={shown(value)} must be true or false")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_SIZE:
        raise ModelError(f"{name}={shown(value)} must be a number of at least 0")
    return float(value)


_READERS: Mapping[str, Callable[[str, object], object]] = {
    "bool": _switch,
    "float": _number,
    "int": size_of,
    "str": text_of,
}
"""How a field of each type is read; the others are lists of sizes."""
