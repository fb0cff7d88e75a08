"""Random lateness of one block of steps: what each action takes longer than its cost says.

Ranks that run the same actions form a stripe (members, replicas, steps). In every action the
members, ranks of a tensor-parallel group, wait for the slowest of them:

    seconds added = max over members of (compute x speed x noise + hiccup) - compute

Sources draw from streams of their own, so that switching one off leaves the others as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from parsim.arrays import Array, Floats, Index
from parsim.cost.jitter import Jitter
from parsim.sim.lateness.hiccups import Stops, add_stops, draw_hiccups
from parsim.sim.lateness.normal import Pairs, exponentials, largest_of, upper_quantile
from parsim.sim.lateness.pipelines import (
    HICCUPS,
    NOISE,
    TIES,
    RankGrid,
    ReplicaSubset,
    Seconds,
    speeds,
    stream,
)
from parsim.sim.step.compiled_schedule import CompiledSchedule

DIRECT_FROM = 3
"""Smallest group of equal members whose slowest is drawn at once instead of member by member."""

DRAWN_AT_ONCE = 65_536
"""Numbers of one draw: arrays that stay in a core's cache, and cost more than their calls."""


class Block:
    """Draws for some consecutive steps; ask for every action once, in the compiled order.

    Columns are replicas x steps. Seconds of an action are a number, or (replicas, 1) where they
    differ.
    """

    def __init__(
        self,
        compiled: CompiledSchedule,
        ranks: RankGrid,
        jitter: Jitter,
        clusters: Index,
        *,
        seed: int,
        number: int,
        one_by_one: frozenset[int],
        subset: ReplicaSubset | None = None,
    ) -> None:
        """Draw what is known before the first action: speeds and hiccups.

        Args:
            compiled: the schedule's actions.
            ranks: who there is.
            jitter: how they differ.
            clusters: the cluster of each step.
            seed: of the whole run.
            number: of this block.
            one_by_one: pipeline ranks whose members are drawn one by one.
            subset: the replicas that run the schedule; None: all of them.
        """
        self.jitter, self.ranks, self.one_by_one = jitter, ranks, one_by_one
        self.replicas = None if subset is None else subset.replicas
        part = 0 if subset is None else subset.part
        groups = ranks.groups if subset is None else len(subset.replicas)
        self.shape = (groups, len(clusters))
        self._noise = stream(seed, NOISE, number, part)
        self._ties = stream(seed, TIES, number, part)
        self._speed = self._speeds(seed, clusters)
        self._pairs = Pairs((ranks.members, *self.shape))
        hiccups = stream(seed, HICCUPS, number, part)
        self._stops = draw_hiccups(compiled, ranks, jitter, self.shape, hiccups)
        self._constant: dict[int, Array] = {}

    def _speeds(self, seed: int, clusters: Index) -> Floats | None:
        """Logarithm of the factors, (pp, members, groups, steps); None where all are alike."""
        if not self.ranks.differ(self.jitter):
            return None
        distinct, cluster_index = np.unique(clusters, return_inverse=True)
        by_cluster = [speeds(self.ranks, self.jitter, seed, int(cluster)) for cluster in distinct]
        if self.replicas is not None:
            by_cluster = [drawn[:, :, self.replicas] for drawn in by_cluster]
        by_step = np.stack(by_cluster, axis=-1)[..., cluster_index]
        return by_step.astype(np.float32) if self.jitter.noise > 0 else by_step

    def late(self, ranks: Sequence[int], seconds: Sequence[Seconds]) -> Iterator[Array | float]:
        """What the slowest members add to each action in turn, (groups, steps) seconds.

        Several actions are drawn at once where the arrays of one are small, for they are many.

        Args:
            ranks: of all actions, in the compiled order.
            seconds: what each computes for.
        """
        if self.jitter.noise == 0:
            for position, (rank, compute) in enumerate(zip(ranks, seconds, strict=True)):
                yield self._steady(rank, compute, self._stops.get(position))
            return
        for first, last, apart in self._runs(ranks):
            draw = self._apart if apart else self._alike
            yield from draw(first, ranks[first:last], seconds[first:last])

    def _runs(self, ranks: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
        """Actions drawn at once: the first, the one behind the last, whether each member is."""
        first, columns = 0, self.shape[0] * self.shape[1]
        for apart, alike in groupby(ranks, key=self.one_by_one.__contains__):
            end = first + sum(1 for _ in alike)
            size = max(1, DRAWN_AT_ONCE // (columns * (self.ranks.members if apart else 1)))
            for low in range(first, end, size):
                yield low, min(low + size, end), apart
            first = end

    def _apart(
        self, first: int, ranks: Sequence[int], seconds: Sequence[Seconds]
    ) -> Iterator[Array]:
        """What the slowest members add, each drawn by itself."""
        factors = self.factors(ranks)
        added = _longer(seconds, factors.max(axis=1))
        for i, compute in enumerate(seconds):
            stops = self._stops.get(first + i)
            if stops is not None:
                stopped = factors[i].reshape(self.ranks.members, -1)[stops.member, stops.column]
                add_stops(added[i], stops, compute, stopped.astype(np.float64))
            yield added[i]

    def factors(self, ranks: Sequence[int]) -> Floats:
        """Logarithm of every member's factor in some actions, (actions, members, groups, steps)."""
        drawn = self._pairs.normal(self._noise, len(ranks))
        drawn *= np.float32(self.jitter.noise)
        if self._speed is not None:
            drawn += self._speed[list(ranks)]
        return drawn

    def _alike(
        self, first: int, ranks: Sequence[int], seconds: Sequence[Seconds]
    ) -> Iterator[Array]:
        """What the slowest of members that are alike add, from one draw a group."""
        noise = self.jitter.noise
        exponential = exponentials(self._noise, (len(ranks), *self.shape))
        added = _longer(seconds, np.float32(noise) * largest_of(self.ranks.members, exponential))
        for i, compute in enumerate(seconds):
            stops = self._stops.get(first + i)
            if stops is not None:
                drawn = exponential[i].reshape(-1).astype(np.float64)
                add_stops(added[i], stops, compute, noise * self._given_largest(drawn, stops))
            yield added[i]

    def _given_largest(self, exponential: Array, stops: Stops) -> Array:
        """Draws of single members when the largest of their group is known.

        Each member is the largest with probability 1 / n; any other is uniform below it.
        """
        n, columns = self.ranks.members, stops.column
        distinct, column_index = np.unique(columns, return_inverse=True)
        largest = self._ties.integers(n, size=len(distinct))[column_index]
        below = self._ties.random(len(columns))
        top = np.exp(exponential[columns] / -n)
        share = np.where(largest == stops.member, 1.0, below)
        return np.asarray(upper_quantile(np.maximum(1.0 - share * top, 1e-300)))

    def _steady(self, rank: int, seconds: Seconds, stops: Stops | None) -> Array | float:
        """Without noise a rank adds the same share to each of its actions."""
        if self._speed is None and stops is None:
            return 0.0
        if rank not in self._constant:
            slowest = 0.0 if self._speed is None else self._speed[rank].max(axis=0)
            self._constant[rank] = np.broadcast_to(np.expm1(slowest), self.shape)
        added = seconds * self._constant[rank]
        if stops is not None:
            stopped = np.zeros(len(stops.column))
            if self._speed is not None:
                by_member = self._speed[rank].reshape(self.ranks.members, -1)
                stopped = by_member[stops.member, stops.column].astype(np.float64)
            add_stops(added, stops, seconds, stopped)
        return added

    def late_update(
        self, rank: int, seconds: Sequence[float], classes: Sequence[Index]
    ) -> list[Array | float]:
        """What the slowest of each class of replicas adds to the optimizer step, (steps,) each.

        Args:
            rank: the pipeline rank.
            seconds: of each class.
            classes: the positions of each class among the replicas.
        """
        if self.jitter.noise == 0:
            return [
                self._slowest_of(replicas, self._steady(rank, update, None))
                for update, replicas in zip(seconds, classes, strict=True)
            ]
        if rank in self.one_by_one:
            slowest = self.factors([rank])[0].max(axis=0)
            most = [slowest[replicas].max(axis=0).astype(np.float64) for replicas in classes]
        else:
            most = [self._largest_update(len(replicas)) for replicas in classes]
        return [
            np.asarray(update * np.expm1(log)) for update, log in zip(seconds, most, strict=True)
        ]

    def _slowest_of(self, replicas: Index, added: Array | float) -> Array | float:
        return added if isinstance(added, float) else np.asarray(added[replicas].max(axis=0))

    def _largest_update(self, replicas: int) -> Array:
        """Logarithm of the largest factor of all members of so many replicas, (steps,)."""
        drawn = self._noise.standard_exponential(self.shape[1])
        largest = largest_of(self.ranks.members * replicas, drawn)
        return np.asarray(self.jitter.noise * largest, dtype=np.float64)


def _longer(seconds: Sequence[Seconds], factors: Floats) -> Array:
    """Seconds that the logarithms of factors add to some actions, (actions, groups, steps)."""
    compute = np.array([np.reshape(action, (-1, 1)) for action in seconds])
    added: Array = np.multiply(np.expm1(factors), compute, dtype=np.float64)
    return added
