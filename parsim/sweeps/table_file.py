"""The table of a sweep as a file, CSV or Parquet by its suffix, that a later run reads again."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from parsim.errors import InputError
from parsim.files import read_text
from parsim.sweeps.run import NUMBERS, Outcome
from parsim.sweeps.workers import extra_module

HEADERS: Final = (NUMBERS, NUMBERS[:-1], NUMBERS[:-2], NUMBERS[:-3])
"""Columns of today's tables, and of older ones that say no training, no unit of speed, no model."""
SUFFIXES: Final = (".csv", ".parquet")

_TYPES: Final = {"float": "float64", "int": "int64", "str": "string"}
_KINDS: Final = {field.name: str(field.type) for field in fields(Outcome)}


def check_suffix(path: Path) -> None:
    """Refuse a table that cannot be written, before the cases run.

    Raises:
        InputError: another suffix, or Parquet without pyarrow.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot write a table to {path}; allowed: {', '.join(SUFFIXES)}")
    if is_parquet(path):
        _arrow("pyarrow", path)


def cells_of(rows: Sequence[Outcome], keys: Sequence[str]) -> list[list[str]]:
    """Header and rows as text; numbers so that they read as the same."""
    return [[*keys, *NUMBERS], *(_texts(row.cells(keys)) for row in rows)]


def parquet_of(rows: Sequence[Outcome], keys: Sequence[str], path: Path) -> bytes:
    """The rows as Parquet: values as text, numbers as numbers, null where there is none."""
    arrow, parquet = _arrow("pyarrow", path), _arrow("pyarrow.parquet", path)
    kinds = [*("string" for _ in keys), *(_TYPES[_KINDS[name]] for name in NUMBERS)]
    columns = zip(*(row.cells(keys) for row in rows), strict=True) if rows else [()] * len(kinds)
    arrays = [
        arrow.array(list(column), type=arrow.type_for_alias(kind))
        for column, kind in zip(columns, kinds, strict=True)
    ]
    data = BytesIO()
    parquet.write_table(arrow.table(arrays, names=[*keys, *NUMBERS]), data)
    return data.getvalue()


def read_outcomes(path: Path, keys: Sequence[str]) -> dict[str, Outcome]:
    """Rows of an earlier run by their digest.

    Raises:
        InputError: the file is another table.
    """
    if is_parquet(path):
        lines = _parquet_cells(path)
    else:
        lines = list(csv.reader(read_text(path).splitlines()))
    if not lines or lines[0] not in [[*keys, *names] for names in HEADERS]:
        raise InputError(
            f"{path}: is no table of this sweep (its columns would be {', '.join(keys)}, "
            f"{NUMBERS[0]}, ...); give another file, or take it away"
        )
    try:
        rows = [_outcome(cells, keys) for cells in lines[1:]]
    except (ValueError, IndexError, KeyError):
        raise InputError(f"{path}: a row is broken; take it away") from None
    return {row.digest: row for row in rows}


def is_parquet(path: Path) -> bool:
    """Whether the table is written as Parquet, else as CSV."""
    return path.suffix.lower() == ".parquet"


def _arrow(module: str, path: Path) -> Any:  # noqa: ANN401  a package without types
    return extra_module(module, "parquet", f"-o {path}")


def _parquet_cells(path: Path) -> list[list[str]]:
    """Header and rows as text; nothing where the file is no Parquet."""
    arrow, parquet = _arrow("pyarrow", path), _arrow("pyarrow.parquet", path)
    try:
        file = parquet.ParquetFile(BytesIO(path.read_bytes()), pre_buffer=False)
        table = file.read(use_threads=False)
    except arrow.ArrowException:
        return []
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [table.column_names, *map(_texts, rows)]


def _texts(cells: Sequence[Any]) -> list[str]:
    return ["" if cell is None else str(cell) for cell in cells]


def _outcome(cells: Sequence[str], keys: Sequence[str]) -> Outcome:
    """The row whose cells these are."""
    values = dict(zip(keys, cells[: len(keys)], strict=True))
    numbers: dict[str, Any] = dict(zip(NUMBERS, cells[len(keys) :], strict=False))
    if len(numbers) < len(HEADERS[-1]):
        raise ValueError("a row is too short")
    for name, kind in _KINDS.items():
        if kind == "float":
            numbers[name] = float(numbers[name] or "nan")
    numbers["devices"] = int(numbers["devices"])
    return Outcome(values=values, **numbers)
