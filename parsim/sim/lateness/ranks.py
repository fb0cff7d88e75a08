"""A plan's ranks as an array, the replicas that run a schedule, and how fast each rank is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.jitter import Jitter

SPEED, NOISE, HICCUPS, TIES = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """A plan's ranks as an array: `groups` (dp) replicas, each of `members` (tp x cp), `pp` times.

    `slow` lists (pipeline rank, replica, member, factor). `meet_forward` and `meet_backward` are
    how many neighbouring replicas exchange shards within every forward and every backward.
    """

    pp: int
    groups: int
    members: int
    slow: tuple[tuple[int, int, int, float], ...] = ()
    meet_forward: int = 1
    meet_backward: int = 1

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.pp * self.groups * self.members

    def differ(self, jitter: Jitter) -> frozenset[int]:
        """Pipeline ranks whose members are not alike, and so must be drawn one by one."""
        if jitter.speed_spread > 0:
            return frozenset(range(self.pp))
        return frozenset(row for row, *_ in self.slow) if jitter.slow_ranks else frozenset()


def stream(seed: int, source: int, number: int, part: int = 0) -> np.random.Generator:
    """The numbers of one source for one block (or cluster), whatever else is drawn.

    Replicas with actions of their own are a part of the block and have numbers of their own.
    """
    words = [seed, source, number, part] if part else [seed, source, number]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


def speeds(ranks: Ranks, jitter: Jitter, seed: int, cluster: int) -> Array:
    """Logarithm of each rank's factor on one cluster, (pp, members, groups)."""
    shape = (ranks.pp, ranks.members, ranks.groups)
    drawn = stream(seed, SPEED, cluster).standard_normal(shape) * jitter.speed_spread
    if jitter.slow_ranks:
        for row, group, member, factor in ranks.slow:
            drawn[row, member, group] += np.log(factor)
    return drawn


class ReplicaSubset(NamedTuple):
    """Replicas that run a schedule of their own: its number, and which they are."""

    part: int
    replicas: Index
