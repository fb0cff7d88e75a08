"""Distinct combinations of columns: what depends on a few of a plan's fields is computed once each.

A hundred thousand plans have some hundred kinds of layers and some thousand gradient reductions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from parsim.arrays import Flags, Index, Ints

DENSE = 1 << 23
"""Codes up to which a table of all of them is written; above it the codes are sorted."""

FEW = 32
"""Values of a column that are not worth numbering those of them that occur."""


@dataclass(frozen=True, slots=True)
class Cases:
    """The distinct combinations: `first` (C,) a row of each, `of` (B,) the number of each row's."""

    first: Index
    of: Index

    @classmethod
    def among(cls, *columns: Ints | Flags) -> Cases:
        """Number the combinations of columns of whole numbers from 0, (B,) each, in their order.

        A column of one value tells nothing apart and is passed over.
        """
        code, count = np.zeros(len(columns[0]), dtype=np.int64), 1
        for column in columns:
            most = int(column.max())
            if column[0] == most and column[-1] == most and int(column.min()) == most:
                continue
            numbers, values = np.asarray(column, dtype=np.int64), most + 1
            if values > FEW and count * values > DENSE:
                numbers, values = _numbered(numbers, values)
            if count * values > DENSE:
                code, count = _numbered(code, count)
            code *= values  # in place: new columns of millions of plans cost more than the product
            code += numbers
            count *= values
        code, count = _numbered(code, count)
        first = np.empty(count, dtype=np.int64)
        first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
        return cls(first, code)


T = TypeVar("T", bound=Hashable)


def numbered(values: Iterable[T]) -> tuple[list[T], Index]:
    """The distinct values as they come, and the number of each value among them, (B,)."""
    number_of: dict[T, int] = {}
    of = [number_of.setdefault(value, len(number_of)) for value in values]
    return list(number_of), np.array(of, dtype=np.int64)


def _numbered(code: Index, limit: int) -> tuple[Index, int]:
    """Numbers from 0 for the codes that occur, all of them below the limit; and how many."""
    if limit > max(DENSE, len(code)) or limit > 64 * len(code) + 4096:
        distinct, numbers = np.unique(code, return_inverse=True)
        return numbers, len(distinct)
    occurs = np.zeros(limit, dtype=bool)
    occurs[code] = True
    distinct = np.flatnonzero(occurs)
    number_of = np.empty(limit, dtype=np.int64)
    number_of[distinct] = np.arange(len(distinct))
    return number_of[code], len(distinct)
