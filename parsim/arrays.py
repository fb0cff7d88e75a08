"""Names of the arrays that formulas take and return, one value per plan unless a formula says more.

Every file takes them from here, so that a signature says what an array holds and not how numpy
spells its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Seconds, bytes, rates, shares."""

Floats = NDArray[np.floating[Any]]
"""Numbers of any precision: random draws are made in 32 bit."""

Index = NDArray[np.int64]
"""Positions in other arrays: rows, ranks, links, actions."""

Ints = NDArray[np.int64]
"""Whole numbers that count: degrees, strides, micro-batches."""

Flags = NDArray[np.bool_]
"""Which entries of another array are meant."""

Num = Array | float | int
"""What a formula accepts where one number stands for all plans."""


def ratio(part: Num, whole: Num) -> Array:
    """Divide entry by entry; zero where there is nothing to divide by."""
    out = np.zeros(np.broadcast_shapes(np.shape(part), np.shape(whole)))
    return np.asarray(np.divide(part, whole, out=out, where=np.asarray(whole) > 0))


class Columns:
    """What a dataclass of columns inherits, whose last axis counts plans (or other cases)."""

    __slots__ = ()

    def take(self, rows: Index | Flags | slice) -> Self:
        """The record of some of the cases; what is no column stays."""
        values = {name: _taken(getattr(self, name), rows) for name in _names_of(type(self))}
        return type(self)(**values)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The cases of several records, one record's behind another's."""
        names = _names_of(cls)
        return cls(**{name: _joined([getattr(part, name) for part in parts]) for name in names})


def _names_of(kind: type[Columns]) -> tuple[str, ...]:
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]
    return _NAMES[kind]


_NAMES: dict[type[Columns], tuple[str, ...]] = {}
"""The columns of each record: cases are taken thousands of times."""


def _taken(value: object, rows: Index | Flags | slice) -> object:
    if isinstance(value, tuple):
        return tuple(_taken(item, rows) for item in value)
    if isinstance(value, Columns):
        return value.take(rows)
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(rows, np.ndarray) and rows.dtype == np.int64:
        return value.take(rows, axis=-1)  # faster than an index behind an ellipsis
    return value[..., rows]


def _joined(values: Sequence[Any]) -> object:
    first = values[0]
    if isinstance(first, tuple):
        return tuple(_joined(items) for items in zip(*values, strict=True))
    if isinstance(first, Columns):
        return type(first).joined(values)
    return np.concatenate(values, axis=-1) if isinstance(first, np.ndarray) else first


def sorted_values(values: Any, *, axis: int | None = None) -> NDArray[Any]:  # noqa: ANN401
    """The distinct values of an array in their order, or its distinct rows along an axis.

    `np.unique` of nothing but the values imports numpy's masked arrays, a fiftieth of a second.
    """
    return np.unique(values, axis=axis, return_index=True)[0]


FEW = 64
"""Entries up to which looking each up in a mapping is faster than sorting all of them."""

_WEIGHTS = np.sqrt(np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0]))
"""Irrational, so that sums of different whole numbers differ."""


def distinct(*columns: Num | Ints) -> tuple[list[Array], NDArray[np.intp] | None, tuple[int, ...]]:
    """Columns of the distinct cases, which of them each entry is, and the shape of all entries.

    The index is None where there is one entry only.
    """
    arrays = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in columns))
    shape = arrays[0].shape
    flat = [array.reshape(-1) for array in arrays]
    if len(flat[0]) <= 1:
        return flat, None, shape
    first, back = _index(flat) if len(flat[0]) > FEW else _index_of_few(flat)
    return [column[first] for column in flat], back, shape


def _index_of_few(columns: Sequence[Array]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Case by case, in the order in which they first occur."""
    number_of: dict[tuple[float, ...], int] = {}
    first: list[int] = []
    back: list[int] = []
    for row, case in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        number = number_of.setdefault(case, len(first))
        if number == len(first):
            first.append(row)
        back.append(number)
    return np.array(first, dtype=np.intp), np.array(back, dtype=np.intp)


def _index(columns: Sequence[Array]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """By one sum per case, which is faster to sort than rows; by rows should two sums collide."""
    logs = sum(w * np.log1p(c) for w, c in zip(_WEIGHTS, columns, strict=False))
    _, first, back = np.unique(logs, return_index=True, return_inverse=True)
    back = back.reshape(-1)
    if all(np.array_equal(column, column[first][back]) for column in columns):
        return first, back
    rows = np.stack(columns, axis=1)
    _, first, back = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, back.reshape(-1)
