"""Which ranks are a group of a mesh's axes, which replica is whose, which nodes are watched.

    pp 2, dp 2, tp 2      groups of dp: rank 0 has (0 2) (1 3)      groups of pp: (0 4) (1 5) ...
                                        rank 1 has (4 6) (5 7)

In a large tree of switches groups are so many that a few nodes' links stand for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.arrays import Index
from parsim.cost.job import Job
from parsim.plan import AXES, Plan

FOLDED_FROM = 2048
"""Ranks above which two leaf groups of each pipeline rank stand for the others."""


def watched_nodes(job: Job, plan: Plan) -> frozenset[int] | None:
    """Nodes whose links stand for all others in a large tree of switches; None: no node does.

    The leaf groups where each pipeline rank begins and ends, with all edges that start or end
    there: leaf groups within one pipeline rank are alike, so that links of the others carry no
    more.

    Leaves out: with an order of ranks that interleaves pipeline ranks, what lies between.
    """
    system, placement = job.system, job.cluster.placement
    network = system.network
    if plan.world_size <= FOLDED_FROM or placement is not None or network is None:
        return None
    if network.fabric not in ("fat-tree", "rail-optimised"):
        return None
    wide = network.nodes_per_leaf
    leaf_of = group_ranks(plan, ("tp",)).reshape(plan.pp, -1) // system.devices_per_node // wide
    leaves = {*leaf_of.min(axis=1).tolist(), *leaf_of.max(axis=1).tolist()}
    return frozenset(node for leaf in leaves for node in range(leaf * wide, (leaf + 1) * wide))


def group_ranks(plan: Plan, axes: Sequence[str]) -> Index:
    """Ranks of the groups of some axes: (pp, groups, members); of pp itself (1, groups, pp).

    `ep` alone stands for the expert-parallel groups.
    """
    order = plan.rank_order
    if axes == ("ep",):  # neighbours inside a stage, whatever axes these are of
        stages = group_ranks(plan, [axis for axis in order if axis != "pp"])[:, 0]
        blocks = stages.reshape(plan.pp, -1, plan.ep, plan.etp)
        return blocks.swapaxes(2, 3).reshape(plan.pp, -1, plan.ep)
    ranks = np.arange(plan.world_size).reshape([plan.degree(axis) for axis in order])
    inner = [order.index(axis) for axis in order if axis in axes]
    outer = [] if "pp" in axes else [order.index("pp")]
    others = [position for position in range(len(order)) if position not in (*inner, *outer)]
    size = int(np.prod([ranks.shape[position] for position in inner]))
    first = ranks.shape[outer[0]] if outer else 1
    return ranks.transpose(*outer, *others, *inner).reshape(first, -1, size)


def replica_of(plan: Plan) -> Index:
    """The replica of each rank, (world,), numbered as `sim/step/replica_classes.py` does."""
    order = plan.rank_order
    ranks = np.arange(plan.world_size).reshape([plan.degree(axis) for axis in order])
    mesh = ranks.transpose([order.index(axis) for axis in AXES]).reshape(plan.pp, plan.dp, -1)
    replicas = np.empty(plan.world_size, dtype=np.int64)
    replicas[mesh] = np.arange(plan.dp)[None, :, None]
    return replicas
