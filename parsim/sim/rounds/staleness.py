"""How old the weights are that a gradient was computed with, when it is applied.

    staleness = updates applied between a worker's copy of the weights and its own update

Where each worker copies the weights at the moment in which its own update is applied, the mean over
T updates is (sum over workers of (l_i + 1)) / T - 1 with l_i the number of worker i's last update:
close to n - 1 for n workers, whatever their speeds. Later copies are younger.

Source: that law counts each update once between every other worker's two; tested.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Index
from parsim.sim.rounds.rounds_end import RoundsEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """One entry for each applied update, in order: its `age` in updates, its worker and round."""

    age: Index
    worker: Index
    round: Index

    @property
    def mean(self) -> float:
        """Mean age."""
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
    workers = int(versions.rank.max()) + 1 if len(versions.rank) else 0
    copied = np.zeros(workers, dtype=np.int64)
    age = np.empty(int(wrote.sum()), dtype=np.int64)
    for event in range(len(wrote)):
        rank = versions.rank[event]
        if wrote[event]:
            age[applied[event] - 1] = applied[event] - 1 - copied[rank]
        else:
            copied[rank] = applied[event]
    return Staleness(age=age, worker=versions.rank[wrote], round=versions.round[wrote])
