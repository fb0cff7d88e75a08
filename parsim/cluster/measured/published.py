"""Published measurements of a device's kernels, and how far each table of them reaches."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from parsim.cluster.hardware import Measured

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """How measured points speak for their neighbours, in logarithms of time.

    `spread` is the standard deviation of what the model leaves, of which the share that is alike
    over `lengths` octaves of each coordinate is passed on to neighbours. `jagged` is what differs
    from shape to shape, `noise` what differs from repeat to repeat. `mean` is the prior of an error
    that all shapes share.
    """

    spread: float
    lengths: tuple[float, ...]
    jagged: float = 0.0
    noise: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Points and scales by kind of kernel; empty where nothing was published."""

    points: Measured = field(default_factory=dict)
    scales: Mapping[str, Scales] = field(default_factory=dict)


@lru_cache(maxsize=64)
def benchmark(device: str) -> Benchmark:
    """What was published about a device of the catalog, by its id.

    `catalog/kernels/DEVICE.csv` has one row a shape: kind, coordinates, ratio (median over
    repeats). `catalog/kernels/scales.csv` says how far each table reaches. Both are written by
    `make fit-kernels`; the ratios belong to the constants that it wrote into `reports/kernels.md`.
    """
    folder = files("parsim.cluster") / "catalog" / "kernels"
    table = folder / f"{device}.csv"
    if not table.is_file():
        return Benchmark()
    return Benchmark(points=_points(table), scales=_scales(folder / "scales.csv", device))


def _points(table: Traversable) -> Measured:
    """The points of a table by kind of kernel."""
    points: dict[str, list[tuple[float, ...]]] = {}
    for kind, *numbers in _rows(table):
        points.setdefault(kind, []).append(_numbers(numbers))
    return {kind: tuple(rows) for kind, rows in points.items()}


def _scales(table: Traversable, device: str) -> dict[str, Scales]:
    """How far the points of each kind of a device's kernels reach."""
    return {
        kind: Scales(
            spread=float(spread),
            jagged=float(jagged),
            noise=float(noise),
            lengths=_numbers(lengths),
        )
        for name, kind, spread, jagged, noise, *lengths in _rows(table)
        if name == device
    }


def _numbers(cells: Sequence[str]) -> tuple[float, ...]:
    """The numbers of a row, of which shorter ones end with empty cells."""
    return tuple(float(cell) for cell in cells if cell)


def _rows(table: Traversable) -> Iterator[list[str]]:
    """The rows of a table without comments and without its header."""
    lines = table.read_text(encoding="utf-8").splitlines()
    return csv.reader([line for line in lines if line and not line.startswith("#")][1:])
