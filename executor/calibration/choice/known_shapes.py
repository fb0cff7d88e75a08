"""What an earlier calibration holds already, so that another one measures something new.

A time that is known counts as measured: the merge keeps it. It does not where the kernels may have
changed since (another release of torch, a file older than FRESH_DAYS), nor where the machine was so
restless that the calibration itself asked for another one, or does not say.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from executor.calibration.choice.belief import Shape
from executor.calibration.choice.spread import Candidate
from executor.calibration.fitting.catalog_file import DRIFT
from executor.calibration.fitting.earlier_file import Calibration, part_of, where_of
from parsim.cluster.hardware import Measured

FRESH_DAYS = 30
"""Assumption: about as often a machine gets another driver, kernel or neighbour."""
DIGITS = 5
"""Significant digits of a file's coordinates that are compared; it is written with six."""


def shapes_known(
    earlier: Calibration | None, version: str, today: datetime.date
) -> frozenset[Shape]:
    """The shapes whose times of an earlier calibration still hold, coordinates as in its file."""
    if earlier is None or not _fresh(earlier, version, today):
        return frozenset()
    system = earlier.system.residuals if earlier.system else {}
    return frozenset({*_shapes(earlier.device.residuals), *_shapes(system)})


def rows_known(candidates: Sequence[Candidate], known: frozenset[Shape]) -> tuple[int, ...]:
    """Which candidates are among them; none where nothing else could be measured."""
    rows = [i for i, candidate in enumerate(candidates) if as_written(candidate.shape) in known]
    new = set(range(len(candidates))) - set(rows)
    return tuple(rows) if any(candidates[i].case is not None for i in new) else ()


def as_written(shape: Shape) -> Shape:
    """A shape with the digits that a file keeps."""
    kind, where = shape
    return kind, tuple(float(f"{x:.{DIGITS}g}") for x in where)


def _fresh(earlier: Calibration, version: str, today: datetime.date) -> bool:
    released = {part_of(source, "torch") for source in earlier.sources}
    oldest = min(part_of(source, "day") for source in earlier.sources)
    age = today - datetime.date.fromisoformat(oldest)
    steady = all(
        float(part_of(source, "drift") or "inf") <= 100 * DRIFT for source in earlier.sources
    )
    return released == {version} and age.days <= FRESH_DAYS and steady


def _shapes(points: Measured) -> set[Shape]:
    return {
        as_written((kind, where_of(kind, row))) for kind, rows in points.items() for row in rows
    }
