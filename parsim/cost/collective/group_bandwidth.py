"""Where the ranks of communicators lie, and the bandwidth that reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from parsim.arrays import Array, Flags, Ints, distinct
from parsim.cluster.hardware import System
from parsim.cluster.placement import group_shape
from parsim.cost.collective.mesh_links import groups_share, ranks_share

GLOO = "gloo"
"""The library of systems whose ranks talk by gloo, without NCCL's latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Placement of one communicator per plan, columns of shape (B,).

    `per_node` ranks of a group share a node, `nodes` is how many nodes a group touches, `sharing`
    how many groups leave one node together and so share its network interfaces. `leaves` says that
    a group spans leaf groups, `crossing` of how many of a leaf group's nodes an edge of a ring or
    tree leaves it, as a share (1: every node's). `ring_share` and `pair_share` are what rings and
    all-to-alls of the group have of a device's rate inside a node (`mesh_links.py`).
    """

    size: Array
    per_node: Array
    nodes: Array
    sharing: Array
    leaves: Flags
    crossing: Array = field(default_factory=lambda: np.ones(1))
    ring_share: Array = field(default_factory=lambda: np.ones(1))
    pair_share: Array = field(default_factory=lambda: np.ones(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks of one communicator per plan, columns (B,): base + i stride + j row_stride.

    i < `size`, and j < `rows` where a communicator joins two axes that have others between them.
    """

    size: Ints
    stride: Ints
    rows: Ints | int = 1
    row_stride: Ints | int = 1


def groups(system: System, *, size: Ints, stride: Ints, world: Ints) -> Groups:
    """Place groups of ranks base + i stride, i < size, on nodes."""
    return placed_groups(system, Ranks(size=size, stride=stride), world)


def placed_groups(system: System, ranks: Ranks, world: Ints) -> Groups:
    """Place groups of ranks on nodes; each distinct case once."""
    table = _shapes(system, ranks, world)
    # a ring goes from node to node along the rows where each of them lies in one node
    leaves_row = (np.asarray(ranks.rows) > 1) & (
        ranks.size * ranks.stride <= system.devices_per_node
    )
    ring, pairs = groups_share(
        system, ranks.size, ranks.stride, ranks.rows, ranks.row_stride, world
    )
    return Groups(
        size=table[:, 0],
        per_node=table[:, 1],
        nodes=table[:, 2],
        sharing=table[:, 3],
        leaves=table[:, 4] > 0,
        crossing=crossing_share(system, np.where(leaves_row, ranks.row_stride, ranks.stride)),
        ring_share=ring,
        pair_share=pairs,
    )


def _shapes(system: System, ranks: Ranks, world: Ints) -> Array:
    """Size, ranks a node, nodes, groups that share them and whether they span leaves, (B, 5)."""
    cases, back, _ = distinct(ranks.size, ranks.stride, ranks.rows, ranks.row_stride, world)
    nodes_per_leaf = system.network.nodes_per_leaf if system.network else 1
    shapes = [
        group_shape(
            size=int(n),
            stride=int(q),
            devices_per_node=system.devices_per_node,
            world_size=int(w),
            nodes_per_leaf=nodes_per_leaf,
            rows=int(m),
            row_stride=int(r),
        )
        for n, q, m, r, w in zip(*cases, strict=True)
    ]
    table = np.array(
        [(s.size, s.ranks_per_node, s.num_nodes, s.sharing, s.spans_leaves) for s in shapes],
        dtype=np.float64,
    )
    return table if back is None else table[back]


def crossing_share(system: System, stride: Ints) -> Array:
    """The share of a leaf group's nodes whose neighbour in a ring lies in another leaf group.

    min(d, L) / L with neighbours d nodes apart and L nodes in a leaf group: rings of neighbouring
    nodes leave it once, those d apart d times, for there are d of them.
    """
    wide = system.network.nodes_per_leaf if system.network else 1
    apart = np.maximum(stride // system.devices_per_node, 1)
    return np.asarray(np.minimum(apart, wide) / wide)


def one_group(system: System, ranks: int, stride: int = 1) -> Groups:
    """The placement of neighbouring groups of `ranks` ranks, one column."""
    size, step = np.array([ranks], dtype=np.int64), np.array([stride], dtype=np.int64)
    return groups(system, size=size, stride=step, world=size * step)


def neighbours(system: System, first: int, ranks: int, stride: int = 1) -> Groups:
    """The placement of one group of ranks `first` + i `stride`, where it really lies; one column.

    The `stride` groups that lie within one another leave a node together.
    """
    members = [first + number * stride for number in range(ranks)]
    nodes = {member // system.devices_per_node for member in members}
    ring, pairs = ranks_share(system, members)
    leaf = system.network.nodes_per_leaf if system.network else 1
    return Groups(
        size=np.array([float(ranks)]),
        per_node=np.array([ranks / len(nodes)]),
        nodes=np.array([float(len(nodes))]),
        sharing=np.array([float(min(stride, system.devices_per_node))]),
        leaves=np.array([len({node // leaf for node in nodes}) > 1]),
        ring_share=np.array([ring]),
        pair_share=np.array([pairs]),
    )


def inter_bandwidth(system: System, where: Groups) -> Array:
    """Bandwidth that one group gets out of each node, bytes/s; endless without a network.

    Groups that leave a node together share its interfaces; a group with few ranks in a node
    reaches only the interfaces beside them. A leaf's up-links have 1 / oversubscription of what its
    nodes can send, and as many groups share them as have an edge there (`crossing`).
    """
    network = system.network
    if network is None:
        return np.full(where.size.shape, np.inf)
    share = network.node_bandwidth / np.maximum(where.sharing, 1.0)
    beside = where.per_node * network.node_bandwidth / system.devices_per_node
    reach = np.minimum(share, np.maximum(network.nic_bandwidth, beside))
    return np.asarray(reach * network.efficiency / group_spine(system, where))


def group_spine(system: System, where: Groups) -> Array:
    """By how much up-links narrow what the ranks of groups send each other, (B,)."""
    return np.where(where.leaves, spine_divisor(system, where.crossing), 1.0)


def spine_divisor(system: System, crossing: Array | float) -> Array:
    """By how much up-links narrow what crosses them: oversubscription x crossing, at least 1."""
    network = system.network
    return np.maximum((network.oversubscription if network else 1.0) * np.asarray(crossing), 1.0)


def messages_spine(system: System, senders: Sequence[int], receivers: Sequence[int]) -> float:
    """By how much up-links narrow messages of ranks that send to any of some others at once."""
    nodes, targets = ({rank // system.devices_per_node for rank in r} for r in (senders, receivers))
    wide = system.network.nodes_per_leaf if system.network else 1
    beyond = {node // wide for node in targets}
    leaving = Counter(node // wide for node in nodes if beyond - {node // wide})
    return float(spine_divisor(system, max(leaving.values(), default=0) / wide))


def gloo_bandwidth(system: System, kind: str, where: Groups) -> Array:
    """Bandwidth of S, bytes/s, of each group on gloo: min(link, interfaces) / share.

    Its calls cost the system's call overhead alone, unless a curve was measured.

    share of n ranks:
      all-reduce      2 (n - 1) / n     ring
      reduce-scatter  2 (n - 1) / n     torch all-reduces a copy and keeps its part
      reduce          2 (n - 1) / n     ring reduce-scatter, then all parts to the root
      broadcast       ceil(log2 n)      binomial tree: the root sends S so many times
      others          (n - 1) / n

    Source: gloo/reduce.cc and gloo/broadcast.cc; reduce_scatter_tensor_coalesced in torch's
    ProcessGroupGloo.cpp; the measured figures of the system `cpu`.
    Leaves out: copies between flat and separate tensors (all-gather), other algorithms for small
    messages.
    """
    link = system.intra.rate
    out = np.where(where.nodes > 1, inter_bandwidth(system, where), np.inf)
    ranks = np.maximum(where.size, 2.0)
    if kind == "broadcast":
        share = np.ceil(np.log2(ranks))
    else:
        twice = kind in ("all_reduce", "reduce", "reduce_scatter")
        share = (2.0 if twice else 1.0) * (ranks - 1.0) / ranks
    return np.asarray(np.minimum(link, out) / share)
