"""Draws of steps whose ranks differ, and what each source of lateness costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.jitter import Jitter
from parsim.sim.lateness.draws import DIRECT_FROM, Block
from parsim.sim.lateness.late_replicas import late_steps
from parsim.sim.lateness.pipelines import RankGrid, ReplicaPipelines, ReplicaSubset

Progress = Callable[[int, int], None]
BLOCK_COLUMNS = 8192
"""Replicas x steps of a block: arrays that stay in a core's cache."""

SHARE_STEPS = 100
"""Steps that are simulated again with a source switched off, to say what it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Priced actions and who runs them; `times` draws steps."""

    pipelines: ReplicaPipelines
    ranks: RankGrid
    steps: int
    seed: int

    def times(
        self,
        jitter: Jitter,
        *,
        first: int | None = None,
        one_by_one: frozenset[int] | None = None,
        progress: Progress | None = None,
    ) -> Array:
        """Seconds of each step, (steps,), or of the first ones in whole blocks.

        Args:
            jitter: what the ranks differ by.
            first: stop after the block that holds this many steps.
            one_by_one: pipeline ranks whose members are drawn one by one, where it must be the
                same as in another call.
            progress: called with (steps done, all steps).
        """
        apart = self.ranks.differ(jitter) if one_by_one is None else one_by_one
        if self.ranks.members < DIRECT_FROM:  # then one draw a group is dearer than each member's
            apart = frozenset(range(self.ranks.pp))
        times, blocks = [], self._blocks(jitter)
        count = self.steps if first is None else min(first, self.steps)
        needed = -(-count // self._block_steps())
        for number, clusters in enumerate(islice(blocks, needed)):
            draws = self._draws(jitter, clusters, number, apart)
            times.append(late_steps(self.pipelines, self.ranks, draws))
            if progress is not None:
                progress(sum(map(len, times)), self.steps)
        return np.concatenate(times)

    def _draws(
        self, jitter: Jitter, clusters: Index, number: int, apart: frozenset[int]
    ) -> list[Block]:
        """The draws of a block of steps, for each part of the replicas."""
        parts = self.pipelines.parts
        return [
            Block(
                part.compiled,
                self.ranks,
                jitter,
                clusters,
                seed=self.seed,
                number=number,
                one_by_one=apart,
                subset=ReplicaSubset(index, part.replicas) if len(parts) > 1 else None,
            )
            for index, part in enumerate(parts)
        ]

    def _block_steps(self) -> int:
        return max(1, BLOCK_COLUMNS // self.ranks.groups)

    def clusters(self, jitter: Jitter) -> Index:
        """The cluster of each step: runs of steps, two or more on each cluster, (steps,)."""
        count = max(1, min(jitter.clusters, self.steps // 2))
        return np.arange(self.steps) * count // self.steps

    def _blocks(self, jitter: Jitter) -> list[Index]:
        bounds = range(0, self.steps, self._block_steps())
        clusters = self.clusters(jitter)
        return [clusters[low : low + self._block_steps()] for low in bounds]

    def within(self, times: Array, jitter: Jitter) -> float:
        """Standard deviation of the steps around the mean of their cluster; 0 of a single step."""
        clusters = self.clusters(jitter)
        means = np.bincount(clusters, times) / np.bincount(clusters)
        freedom = max(1, len(times) - len(means))
        return float(np.sqrt(np.sum((times - means[clusters]) ** 2) / freedom))

    def losses(self, jitter: Jitter, times: Array) -> dict[str, float]:
        """What each source costs: the first steps again, without it.

        Members are drawn one by one or at once as before, so that all else is the same.
        """
        apart = self.ranks.differ(jitter)
        losses = {}
        for source in jitter.active:
            without = self.times(jitter.without(source), first=SHARE_STEPS, one_by_one=apart)
            losses[source] = float(times[: len(without)].mean() - without.mean())
        return losses

    def alone(self, jitter: Jitter, base: float) -> dict[str, float]:
        """What each source costs where it is the only one, seconds on top of `base`."""
        return {
            source: float(self.times(jitter.only(source), first=SHARE_STEPS).mean()) - base
            for source in jitter.active
        }
