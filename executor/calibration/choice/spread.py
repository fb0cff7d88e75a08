"""Shapes that a calibration may measure: which the fit lacks, which an earlier one has."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.workloads import TimedCase
from executor.calibration.choice.belief import Shape
from executor.calibration.fitting.catalog_file import DRIFT
from executor.calibration.fitting.earlier_file import Calibration, part_of, where_of
from parsim.arrays import Array
from parsim.cluster.hardware import Measured

LEAST_SHAPES = {
    kinds.GEMM: 20,
    kinds.LAUNCH: 1,
    kinds.FORWARD: 4,
    kinds.BACKWARD: 4,
    kinds.COPY: 3,
    **dict.fromkeys(kinds.UPDATES, 3),
    **dict.fromkeys(kinds.LINKS, 4),
}
"""Spread shapes of a kind that the fit of the constants wants: 20 products, 6 to 9 points of
attention, 4 sizes of a collective, 1, 16 and 256 MiB of what is memory-bound (`LEAST_OTHER`)."""
LEAST_OTHER = 3
A_ROUND = {kinds.GEMM: 4}
"""Shapes of a kind in a round of the spread, where not 1: the time may end after any of them."""
LATE = 1000
"""Rounds that kinds wait which no plan has: they serve other scenarios."""
DEAR = 3.0
"""A spread shape costs at most so many times the median of its kind: any will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeCandidate:
    """A shape of a plan or of the spread; `case` None where it cannot be run by itself.

    `cost` is what measuring takes, seconds; infinite where it is `refused`, for this reason.
    """

    shape: Shape
    case: TimedCase | None
    cost: float
    refused: str = ""


def lacking(
    candidates: Sequence[ShapeCandidate], weights: Array, known: Sequence[int]
) -> list[int]:
    """What every kind lacks to its least count: first of each kind, then the second of each ..."""
    rows_of: dict[tuple[str, float], list[int]] = {}
    known_rows = set(known)
    for i, candidate in enumerate(candidates):
        if candidate.case is not None and np.isfinite(candidate.cost):
            rows_of.setdefault((candidate.shape[0], _ranks(candidate)), []).append(i)
    placed: list[tuple[int, bool, int]] = []
    for (kind, _), rows in rows_of.items():
        late = LATE if kind not in LEAST_SHAPES and not weights[rows].any() else 0
        have = [i for i in rows if i in known_rows]
        chosen = _farthest(candidates, rows, have, LEAST_SHAPES.get(kind, LEAST_OTHER))
        every = A_ROUND.get(kind, 1)
        placed += [(late + n // every, kind not in LEAST_SHAPES, i) for n, i in enumerate(chosen)]
    return [i for _, _, i in sorted(placed, key=lambda entry: entry[:2])]


def _ranks(candidate: ShapeCandidate) -> float:
    """Ranks of a collective's group, of which each wants sizes of its own; else 0."""
    kind, where = candidate.shape
    return where[1] if kind in kinds.LINKS and len(where) > 1 else 0.0


def _farthest(
    candidates: Sequence[ShapeCandidate], rows: Sequence[int], have: Sequence[int], count: int
) -> list[int]:
    """Shapes that are not too dear, always the one farthest from those there are, up to a count."""
    limit = DEAR * float(np.median([candidates[i].cost for i in rows]))
    rows = [i for i in rows if candidates[i].cost <= limit or i in have]
    at = np.log2(np.array([candidates[i].shape[1] for i in rows], dtype=np.float64))
    middle = int(np.argmin(np.abs(at - np.median(at, axis=0)).sum(axis=1)))
    chosen = [rows.index(i) for i in have] or [middle]
    while len(chosen) < count:
        distance = np.abs(at[:, None, :] - at[None, chosen, :]).sum(axis=2).min(axis=1)
        if not distance.max() > 0.0:
            break
        chosen.append(int(np.argmax(distance)))
    return [rows[i] for i in chosen if rows[i] not in have]


FRESH_DAYS = 30
"""Assumption: about as often a machine gets another driver, kernel or neighbour."""
DIGITS = 5
"""Significant digits of a file's coordinates that are compared; it is written with six."""


def shapes_known(
    earlier: Calibration | None, version: str, today: datetime.date
) -> frozenset[Shape]:
    """The shapes whose times of an earlier calibration still hold, coordinates as in its file.

    A time that is known counts as measured: the merge keeps it. It does not where the kernels may
    have changed since (another release of torch, a file older than FRESH_DAYS), nor where the
    machine was so restless that the calibration itself asked for another one, or does not say.
    """
    if earlier is None or not _fresh(earlier, version, today):
        return frozenset()
    system = earlier.system.residuals if earlier.system else {}
    return frozenset({*_shapes(earlier.device.residuals), *_shapes(system)})


def rows_known(candidates: Sequence[ShapeCandidate], known: frozenset[Shape]) -> tuple[int, ...]:
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
