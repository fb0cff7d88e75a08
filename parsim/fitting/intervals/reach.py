"""How errors of predictions grow with the distance between what was measured and what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from parsim.arrays import Array
from parsim.fitting.intervals.residuals import Residual, sorted_by
from parsim.sim.confidence.known_errors import ANY

Cell = tuple[float, Array]
"""Mean error of the runs of a cell, and the mean of their sizes' logarithms."""


def reach(runs: Sequence[Residual]) -> float:
    """Log error per factor e of distance: sqrt of w in (e_i - e_j)^2 / 2 = c + w d^2.

    e and d between cells of one device and software; w is the mean over devices and software of
    the slopes, none counted below 0.
    """
    slopes = []
    for _, members in sorted_by(runs, lambda run: (run.device, run.software, ANY)):
        cells = [_cell(group) for _, group in sorted_by(members, lambda run: (run.cell, ANY, ANY))]
        if len(cells) > 2:
            slopes.append(max(_slope(cells), 0.0))
    return float(np.sqrt(np.mean(slopes))) if slopes else 0.0


def _cell(runs: Sequence[Residual]) -> Cell:
    """Mean error of a cell, and the mean of its sizes' logarithms."""
    logs = np.log([list(run.sizes.values()) for run in runs])
    return float(np.mean([run.error for run in runs])), logs.mean(axis=0)


def _slope(cells: Sequence[Cell]) -> float:
    pairs = list(combinations(cells, 2))
    distances = np.array([float(np.sum((a[1] - b[1]) ** 2)) for a, b in pairs])
    squares = np.minimum([0.5 * (a[0] - b[0]) ** 2 for a, b in pairs], 0.02)
    spread = float(distances.var())
    both = float(((distances - distances.mean()) * (squares - squares.mean())).mean())
    return both / spread if spread > 0.0 else 0.0
