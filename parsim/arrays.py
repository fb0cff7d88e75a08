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
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{name: _taken(getattr(self, name), rows) for name in names})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The cases of several records, one record's behind another's."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: _joined([getattr(part, name) for part in parts]) for name in names})


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
