"""Where a plan's ranks lie on a mixed cluster, and which replicas are alike.

A slot is what holds one pipeline rank of one replica: its tensor- and context-parallel ranks, which
work in step. Slots are numbered pipeline rank x dp + replica. Kinds of node are sets, one bit each:

    groups fast (bit 0), slow (bit 1); pp 2, dp 2, pp outermost        pp innermost
             replica 0  replica 1                                replica 0  replica 1
    rank 0      01         01                                       01         10
    rank 1      10         10                                       01         10
    replicas    alike: one class                                 two classes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Cluster
from parsim.cluster.mixed import rank_groups
from parsim.plan import Plan
from parsim.plan.record import AXES
from parsim.sim.folding import Communicator, Edge, fold

Index = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Kinds of node by pipeline rank and replica, (pp, dp) sets of bits.

    `kinds` are those of a slot's devices, `shard` and `replicate` those that its data-parallel
    groups touch, `world` those of all. `microbatches` (dp,) are each replica's.
    """

    kinds: Index
    shard: Index
    replicate: Index
    world: int
    microbatches: Index
    dp_shard: int
    in_step: bool

    @classmethod
    def of(cls, cluster: Cluster, plan: Plan) -> Slots:
        """Lay a plan's ranks out.

        Raises:
            PlanError: the plan's order of nodes does not fit the cluster.
        """
        return cls.on(rank_groups(cluster, plan.node_order), plan)

    @classmethod
    def on(cls, groups: Index, plan: Plan) -> Slots:
        """The same where the group of each rank's device is known.

        Groups of ZeRO shards span dp_shard x cp, copies dp_replicate, and cp without ZeRO.
        """
        bits = np.int64(1) << groups
        mesh = bits.reshape([plan.degree(axis) for axis in plan.rank_order])
        mesh = mesh.transpose([plan.rank_order.index(axis) for axis in AXES])
        held = np.bitwise_or.reduce(mesh.reshape(*mesh.shape[:3], -1), axis=3)
        shard = np.broadcast_to(np.bitwise_or.reduce(held, axis=2, keepdims=True), held.shape)
        copies = np.broadcast_to(np.bitwise_or.reduce(held, axis=1, keepdims=True), held.shape)
        flat = (plan.pp, plan.dp)
        return cls(
            kinds=held.reshape(flat),
            shard=(shard if plan.zero_stage else held).reshape(flat),
            replicate=copies.reshape(flat),
            world=int(np.bitwise_or.reduce(bits)),
            microbatches=np.array(plan.microbatches, dtype=np.int64),
            dp_shard=plan.dp_shard,
            in_step=plan.zero_stage >= 2 and plan.dp_shard > 1,
        )

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return int(self.kinds.shape[0])

    @property
    def dp(self) -> int:
        """Replicas."""
        return int(self.kinds.shape[1])

    @property
    def shard_group(self) -> Index:
        """The group of replicas with which each one exchanges shards, (dp,)."""
        return np.arange(self.dp) // self.dp_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Classes of replicas with equal times.

    `class_of` (dp,) is each replica's, `first` (C,) a replica of each, `count` (C,) how many it
    stands for. `meets` (C, C) says which classes exchange shards with one another.
    """

    class_of: Index
    first: Index
    meets: Flags

    @property
    def count(self) -> Index:
        """Replicas of each class."""
        return np.bincount(self.class_of, minlength=len(self.first))


def fold_replicas(slots: Slots) -> Replicas:
    """Classes by colour refinement over slots: equal programs, kinds, groups and neighbours."""
    dp, last = slots.dp, (slots.pp - 1) * slots.dp
    found = fold(_colours(slots), _communicators(slots), _edges(slots, last)).class_of
    rows = found.reshape(slots.pp, dp).T
    _, first, class_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return _replicas(slots, class_of.reshape(-1), first)


def every_replica(slots: Slots) -> Replicas:
    """Each replica a class of its own: nothing is folded."""
    alone = np.arange(slots.dp)
    return _replicas(slots, alone, alone)


def _replicas(slots: Slots, class_of: Index, first: Index) -> Replicas:
    """Number classes by their first replica."""
    order = np.argsort(first)
    rename = np.empty_like(order)
    rename[order] = np.arange(len(order))
    class_of, first = rename[class_of], first[order]
    group = slots.shard_group
    meets = np.zeros((len(first), len(first)), dtype=bool)
    for number, replica in enumerate(first):
        meets[number, class_of[group == group[replica]]] = True
    return Replicas(class_of=class_of, first=first, meets=meets)


def _colours(slots: Slots) -> list[tuple[int, ...]]:
    parts = (slots.kinds, slots.shard, slots.replicate)
    return [
        (rank, int(slots.microbatches[replica]), *(int(part[rank, replica]) for part in parts))
        for rank in range(slots.pp)
        for replica in range(slots.dp)
    ]


def _communicators(slots: Slots) -> list[Communicator]:
    number = np.arange(slots.pp * slots.dp).reshape(slots.pp, -1, slots.dp_shard)
    rows = {
        "shard": number.reshape(-1, slots.dp_shard),
        "replicate": number.transpose(0, 2, 1).reshape(-1, number.shape[1]),
        "world": number.reshape(1, -1),
    }
    return [
        Communicator(kind, tuple(row)) for kind, table in rows.items() for row in table.tolist()
    ]


def _edges(slots: Slots, last: int) -> list[Edge]:
    """Messages to the next pipeline rank and back, and around for ranks with several stages."""
    dp = slots.dp
    found = [Edge(one, one + dp, "forward") for one in range(last)]
    found += [Edge(one + dp, one, "backward") for one in range(last)]
    if slots.pp > 1:
        found += [Edge(last + one, one, "around") for one in range(dp)]
    return found
