"""How sure the seconds of a collective are, by its size and by what was measured of its group."""

from __future__ import annotations

from typing import Literal

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.measured_curve import measured

SPREAD = {
    "measured": (0.57, 0.36, 0.12, 0.04),
    "node": (0.66, 0.50, 0.15, 0.04),
    "across": (0.85, 0.82, 0.57, 0.22),
}
"""Standard deviation of ln(measured / predicted), by `size_class`."""


def size_class(size: Array | float) -> Index:
    """0 below 64 KiB, 1 below 1 MiB, 2 up to 64 MiB, 3 above."""
    size = np.asarray(size, dtype=np.float64)
    return (size >= 64 * 2.0**10).astype(np.int64) + (size >= 2.0**20) + (size > 64 * 2.0**20)


def collective_spread(
    system: System, kind: CollectiveKind | Literal["send_recv"], size: Array | float, where: Groups
) -> Array:
    """Standard deviation of the logarithm of a collective's error, by what its number rests on.

    A measured curve of this very group (or a calibration's residuals of it), links inside a node,
    or links and a network that nobody measured; by size class. An 80 % interval is the time times
    exp(+-1.28 sd). Sums of many calls are surer than that; their shared part is not.

    Messages of a benchmark count as measured where all-gathers are.

    Source: reports/collectives.md, 80th percentile of |ln error| over 1.28.
    Leaves out: systems that are not like any public one; networks that others use too.
    """
    sizes = size_class(size)
    like: CollectiveKind = "all_gather" if kind == "send_recv" else kind
    known = measured(system, like, where) | calibrated_groups(system, kind, where)
    node = np.where(
        where.nodes > 1, np.array(SPREAD["across"])[sizes], np.array(SPREAD["node"])[sizes]
    )
    return np.asarray(np.where(known, np.array(SPREAD["measured"])[sizes], node))


def calibrated_groups(
    system: System, kind: CollectiveKind | Literal["send_recv"], where: Groups
) -> Flags:
    """Which groups a calibration has measured: those of the ranks in its points, in one node.

    Points without ranks are an earlier calibration's, which measured pairs only. Messages go
    between two ranks whatever their group.
    """
    points = system.residuals.get(kind)
    inside = where.nodes <= 1
    if not points:
        return np.zeros(where.size.shape, dtype=bool)
    if kind == "send_recv":
        return np.asarray(inside)
    ranks = {point[1] for point in points} if len(points[0]) > 2 else {2.0}
    return np.asarray(inside & np.isin(where.size, list(ranks)))
