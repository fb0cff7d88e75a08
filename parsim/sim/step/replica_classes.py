"""Where a plan's ranks lie on groups of nodes, and which replicas are alike.

One pipeline rank of one replica is a set of tensor- and context-parallel ranks, which work in step;
such sets are numbered pipeline rank x dp + replica. Groups of nodes are sets too, one bit each:

    groups fast (bit 0), slow (bit 1); pp 2, dp 2, pp outermost        pp innermost
             replica 0  replica 1                                replica 0  replica 1
    rank 0      01         01                                       01         10
    rank 1      10         10                                       01         10
    replicas    alike: one class                                 two classes

A listed slow rank holds back its set, so that its replica is a class of its own too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cluster.groups import rank_groups, rank_kinds
from parsim.cluster.hardware import Cluster
from parsim.plan import AXES, Plan
from parsim.sim.step.folding import Communicator, Edge, fold

SlowRanks = Sequence[tuple[int, float]]
"""Ranks with how many times as long they compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesOfRanks:
    """Groups of nodes by pipeline rank and replica, (pp, dp) sets of bits.

    `groups` are those of the devices, `shard` and `replicate` those that their data-parallel groups
    touch, `world` those of all. `microbatches` (dp,) are each replica's. `shards_in_actions` says
    whether replicas exchange shards within every pass (ZeRO-2 and 3). `slowness` (pp, dp) is how
    many times as long the slowest device computes, 1 where none is listed as slow.
    """

    groups: Index
    shard: Index
    replicate: Index
    world: int
    microbatches: Index
    dp_shard: int
    shards_in_actions: bool
    slowness: Array

    @classmethod
    def of(
        cls, cluster: Cluster, plan: Plan, *, by_kind: bool = False, slow_ranks: SlowRanks = ()
    ) -> DevicesOfRanks:
        """Lay a plan's ranks out; `by_kind` groups of equal nodes count as one.

        Raises:
            PlanError: the plan's order of nodes does not fit the cluster.
        """
        if not cluster.groups:
            return cls.on(np.zeros(plan.world_size, dtype=np.int64), plan, slow_ranks)
        groups = rank_kinds if by_kind else rank_groups
        return cls.on(groups(cluster, plan.node_order), plan, slow_ranks)

    @classmethod
    def on(cls, groups: Index, plan: Plan, slow_ranks: SlowRanks = ()) -> DevicesOfRanks:
        """Lay ranks out where the group of each one's device is known, (world,).

        Groups of ZeRO shards span dp_shard x cp, copies dp_replicate, and cp without ZeRO.
        """
        bits = np.int64(1) << groups
        groups = np.bitwise_or.reduce(_by_axes(bits, plan), axis=3)
        shard = np.broadcast_to(np.bitwise_or.reduce(groups, axis=2, keepdims=True), groups.shape)
        copies = np.broadcast_to(np.bitwise_or.reduce(groups, axis=1, keepdims=True), groups.shape)
        flat = (plan.pp, plan.dp)
        return cls(
            groups=groups.reshape(flat),
            shard=(shard if plan.zero_stage else groups).reshape(flat),
            replicate=copies.reshape(flat),
            world=int(np.bitwise_or.reduce(bits)),
            microbatches=np.array(plan.microbatches, dtype=np.int64),
            dp_shard=plan.dp_shard,
            shards_in_actions=plan.zero_stage >= 2 and plan.dp_shard > 1,
            slowness=_slowness(slow_ranks, plan).reshape(flat),
        )

    @property
    def pp(self) -> int:
        """How many pipeline ranks there are."""
        return int(self.groups.shape[0])

    @property
    def dp(self) -> int:
        """How many replicas there are."""
        return int(self.groups.shape[1])

    @property
    def shard_group(self) -> Index:
        """The group of replicas with which each one exchanges shards, (dp,)."""
        return np.arange(self.dp) // self.dp_shard


def _by_axes(values: Array | Index, plan: Plan) -> Array | Index:
    """Values of ranks by pipeline rank, copy, shard, and tensor- or context-parallel member."""
    mesh = values.reshape([plan.degree(axis) for axis in plan.rank_order])
    mesh = mesh.transpose([plan.rank_order.index(axis) for axis in AXES])
    return mesh.reshape(*mesh.shape[:3], -1)


def _slowness(slow_ranks: SlowRanks, plan: Plan) -> Array:
    """How many times as long the slowest member of each set computes, (pp, replicate, shard)."""
    factors = np.ones(plan.world_size)
    for rank, factor in slow_ranks:
        factors[rank] = factor
    return np.asarray(_by_axes(factors, plan).max(axis=3))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaClasses:
    """Classes of replicas with equal times.

    `class_of` (dp,) is each replica's, `first` (C,) a replica of each, `count` (C,) how many it
    stands for. `sharers` (C, C) says which classes exchange shards with one another.
    """

    class_of: Index
    first: Index
    sharers: Flags

    @property
    def count(self) -> Index:
        """How many replicas each class stands for."""
        return np.bincount(self.class_of, minlength=len(self.first))


def fold_replicas(devices: DevicesOfRanks) -> ReplicaClasses:
    """Find classes by colour refinement: equal programs, nodes, groups of ranks and neighbours."""
    dp, last = devices.dp, (devices.pp - 1) * devices.dp
    if _all_alike(devices):
        return _replicas(devices, np.zeros(dp, dtype=np.int64), np.zeros(1, dtype=np.int64))
    folding = fold(_colours(devices), _communicators(devices), _edges(devices, last))
    rows = folding.class_of.reshape(devices.pp, dp).T
    _, first, class_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return _replicas(devices, class_of.reshape(-1), first)


def _all_alike(devices: DevicesOfRanks) -> bool:
    """Whether replicas have equal nodes and batches, so that nothing is there to refine."""
    kinds = (devices.groups, devices.shard, devices.replicate)
    parts = (*kinds, devices.microbatches[None, :], devices.slowness)
    return all(bool((part == part[:, :1]).all()) for part in parts)


def _replicas(devices: DevicesOfRanks, class_of: Index, first: Index) -> ReplicaClasses:
    """Number classes by their first replica."""
    order = np.argsort(first)
    rename = np.empty_like(order)
    rename[order] = np.arange(len(order))
    class_of, first = rename[class_of], first[order]
    group = devices.shard_group
    sharers = np.zeros((len(first), len(first)), dtype=bool)
    for number, replica in enumerate(first):
        sharers[number, class_of[group == group[replica]]] = True
    return ReplicaClasses(class_of=class_of, first=first, sharers=sharers)


def _colours(devices: DevicesOfRanks) -> list[tuple[int, ...]]:
    _, speeds = np.unique(devices.slowness, return_inverse=True)
    parts = (devices.groups, devices.shard, devices.replicate, speeds.reshape(devices.pp, -1))
    return [
        (rank, int(devices.microbatches[replica]), *(int(part[rank, replica]) for part in parts))
        for rank in range(devices.pp)
        for replica in range(devices.dp)
    ]


def _communicators(devices: DevicesOfRanks) -> list[Communicator]:
    number = np.arange(devices.pp * devices.dp).reshape(devices.pp, -1, devices.dp_shard)
    rows = {
        "shard": number.reshape(-1, devices.dp_shard),
        "replicate": number.transpose(0, 2, 1).reshape(-1, number.shape[1]),
        "world": number.reshape(1, -1),
    }
    return [
        Communicator(kind, tuple(row)) for kind, table in rows.items() for row in table.tolist()
    ]


def _edges(devices: DevicesOfRanks, last: int) -> list[Edge]:
    """Messages to the next pipeline rank and back, and around for ranks with several stages."""
    dp = devices.dp
    edges = [Edge(number, number + dp, "forward") for number in range(last)]
    edges += [Edge(number + dp, number, "backward") for number in range(last)]
    if devices.pp > 1:
        edges += [Edge(last + number, number, "around") for number in range(dp)]
    return edges
