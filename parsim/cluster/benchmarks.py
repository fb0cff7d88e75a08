"""Published kernel times of the catalog's devices, as measured over modelled times.

`catalog/kernels/DEVICE.csv` has one row a shape: kind, coordinates, ratio (median over repeats).
`catalog/kernels/scales.csv` says how far each table reaches. Both are written by
`make fit-kernels`; the ratios belong to the constants that it wrote into `reports/kernels.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from parsim.cluster.hardware import Measured


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
    """What was published about a device of the catalog, by its id."""
    folder = files("parsim.cluster") / "catalog" / "kernels"
    table = folder / f"{device}.csv"
    if not table.is_file():
        return Benchmark()
    points: dict[str, list[tuple[float, ...]]] = {}
    for kind, *numbers in csv.reader(_lines(table.read_text(encoding="utf-8"))):
        points.setdefault(kind, []).append(tuple(float(number) for number in numbers if number))
    scales = {}
    rows = csv.reader(_lines((folder / "scales.csv").read_text(encoding="utf-8")))
    for name, kind, spread, jagged, noise, *lengths in rows:
        if name == device:
            scales[kind] = Scales(
                spread=float(spread),
                jagged=float(jagged),
                noise=float(noise),
                lengths=tuple(float(number) for number in lengths if number),
            )
    return Benchmark(points={kind: tuple(rows) for kind, rows in points.items()}, scales=scales)


def _lines(text: str) -> list[str]:
    """The rows of a file without comments and without its header."""
    return [line for line in text.splitlines() if line and not line.startswith("#")][1:]
