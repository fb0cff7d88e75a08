"""What a run of rounds leaves: when each round ended, what queues served, who read and wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.arrays import Array, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """When ranks read and wrote the shared weights, in the order in which it happened.

    Entries stand in order of events: `time` in seconds, `rank`, `round` and whether it `wrote`.
    """

    time: Array
    rank: Index
    round: Index
    wrote: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsEnd:
    """What came out: seconds.

    `finished` (rounds, ranks) is the end of each round on each rank that has tasks, `busy` by queue
    how long it served. `times` are (start, end) by task, rank and round, where they were kept.
    `dropped` counts rounds of ranks that came after a quorum had closed them, `skipped` those that
    such a rank never began because the others had closed them meanwhile.
    """

    finished: Array
    busy: Mapping[str, float]
    versions: Versions
    times: Mapping[tuple[int, int, int], tuple[float, float]]
    dropped: int
    skipped: int

    @property
    def end(self) -> float:
        """The end of the last round on any rank."""
        return float(self.finished[-1].max())
