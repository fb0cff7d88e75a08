"""What a run of rounds leaves: ends of rounds, what queues served, who read and wrote what age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUses:
    """When ranks read and wrote the shared weights, in the order in which it happened.

    Entries stand in order of events: `time` in seconds, `rank`, `round` and whether it `wrote`.
    """

    time: Array
    rank: Index
    round: Index
    wrote: Index


class Service(NamedTuple):
    """What a queue served: whose task, from when to when."""

    queue: str
    task: int
    rank: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsEnd:
    """What came out: seconds.

    `finished` (rounds, ranks) is the end of each round on each rank that has tasks, `busy` by queue
    how long it served. `times` are (start, end) by task, rank and round, where they were kept, and
    `services` what queues served then.
    `dropped` counts rounds of ranks that came after a quorum had closed them, `skipped` those that
    such a rank never began because the others had closed them meanwhile.
    """

    finished: Array
    busy: Mapping[str, float]
    versions: WeightUses
    times: Mapping[tuple[int, int, int], tuple[float, float]]
    dropped: int
    skipped: int
    services: tuple[Service, ...] = ()

    @property
    def end(self) -> float:
        """The end of the last round on any rank."""
        return float(self.finished[-1].max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """One entry for each applied update, in order: its `age` in updates, its worker and round.

        staleness = updates applied between a worker's copy of the weights and its own update

    Where each worker copies the weights at the moment in which its own update is applied, the mean
    over T updates is (sum over workers of (l_i + 1)) / T - 1 with l_i the number of worker i's last
    update: close to n - 1 for n workers, whatever their speeds. Later copies are younger.

    Source: that law counts each update once between every other worker's two; tested.
    """

    age: Index
    worker: Index
    round: Index

    @property
    def mean(self) -> float:
        """Mean age of all updates."""
        return float(self.age.mean()) if len(self.age) else 0.0

    def share(self) -> list[float]:
        """The share of updates of each age, from 0 to the oldest."""
        counts = np.bincount(self.age) if len(self.age) else np.zeros(1)
        return [float(count) for count in counts / max(len(self.age), 1)]

    def quantile(self, share: float) -> int:
        """The age that so many of the updates do not exceed."""
        return int(np.quantile(self.age, share, method="inverted_cdf")) if len(self.age) else 0

    def by_worker(self, workers: int) -> list[float]:
        """Mean age of each worker's updates."""
        total = np.bincount(self.worker, weights=self.age, minlength=workers)
        count = np.bincount(self.worker, minlength=workers)
        return [float(mean) for mean in total / np.maximum(count, 1)]


def staleness(end: RoundsEnd) -> Staleness:
    """Ages of all updates of a run; a worker that never copied has the weights of the start."""
    versions = end.versions
    wrote = versions.wrote.astype(bool)
    applied = np.cumsum(wrote)
    order = np.argsort(versions.rank, kind="stable")
    worker, copies = versions.rank[order], np.where(wrote, -1, applied)[order]
    begins = np.flatnonzero(np.diff(worker, prepend=-1))
    copies[begins] = np.maximum(copies[begins], 0)
    last = np.empty_like(copies)
    last[order] = _last_known(copies)
    return Staleness(
        age=(applied - 1 - last)[wrote], worker=versions.rank[wrote], round=versions.round[wrote]
    )


def _last_known(values: Index) -> Index:
    """Each value, or the last one before it that is not below 0."""
    at = np.where(values < 0, 0, np.arange(len(values)))
    return np.asarray(values[np.maximum.accumulate(at)])
