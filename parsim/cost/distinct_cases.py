"""Distinct cases, each priced once: a search prices 10^5 plans, but they share few shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Array, Ints, Num

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
