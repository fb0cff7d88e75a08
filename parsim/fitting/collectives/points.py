"""Measured curves of collectives, as fits take them from the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.units import MIB
from parsim.validation.collective.measured_collective import (
    MeasuredCollective,
    parse_collective,
    read_collectives,
)
from parsim.validation.tables import RowSkipped

SMALL = 0.3
"""Weight of a point below 1 MiB over that of a larger one."""
LEAST_POINTS = 5
"""Curves with fewer points take part in the fit but are not left out by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """One measured curve: a collective on a group, at several sizes."""

    name: str
    system: System
    where: Groups
    kind: CollectiveKind
    algorithm: str
    scope: str
    size: Array
    seconds: Array
    overhead: float

    def only(self, chosen: Flags) -> Points:
        """Some of its sizes."""
        return replace(self, size=self.size[chosen], seconds=self.seconds[chosen])

    def weights(self) -> Array:
        """How much each point counts in a fit over curves."""
        return np.asarray(np.where(self.size >= MIB, 1.0, SMALL) / np.sqrt(len(self.size)))


def load_points(paths: Sequence[Path]) -> list[Points]:
    """Unflagged collectives of the tables, by curve: one source, group, kind and algorithm."""
    curves: dict[tuple[object, ...], list[MeasuredCollective]] = {}
    for path in paths:
        for row in read_collectives(path):
            try:
                timed = parse_collective(row)
            except RowSkipped:
                continue
            if not timed.flag and timed.kind != "send_recv":
                shaped = timed.system.id, timed.kind, timed.algorithm, *ranks_and_nodes(timed.where)
                curves.setdefault((row["source"], row["tool"], *shaped), []).append(timed)
    return [_points(str(key[1]), rows) for key, rows in curves.items()]


def ranks_and_nodes(where: Groups) -> tuple[int, int]:
    """Ranks of the first group, and the nodes that they are on."""
    return int(where.size[0]), int(where.nodes[0])


def _points(tool: str, rows: Sequence[MeasuredCollective]) -> Points:
    first = rows[0]
    ranks, nodes = ranks_and_nodes(first.where)
    name = f"{first.system.id} {first.kind} {ranks} on {nodes} {first.algorithm}".strip()
    return Points(
        name=f"{name}, {tool.split()[0]}",
        system=replace(first.system, curves=()),
        where=first.where,
        kind=first.kind,  # type: ignore[arg-type]
        algorithm=first.algorithm,
        scope=first.scope,
        size=np.array([row.size for row in rows]),
        seconds=np.array([row.seconds for row in rows]),
        overhead=first.overhead,
    )
