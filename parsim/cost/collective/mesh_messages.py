"""Shares of a device's links that a message between two ranks has, where no switch joins devices.

A switch gives every pair all links of a device: 1. In a mesh two neighbours have the cable between
them, others pass a third rank of their communicator, or the hosts (`pair_rate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import lcm

import numpy as np

from parsim.arrays import Array, Ints, distinct
from parsim.cluster.hardware import System
from parsim.cluster.topology.mesh import direct_pairs, node_mesh, pair_rate
from parsim.cost.collective.mesh_links import LONGEST, whole_rate
from parsim.cost.collective.torus_links import neighbour_share


def pair_share(system: System, first: int, last: int, group: Sequence[int] = ()) -> float:
    """Share of a device's rate that a message between two ranks of one node has.

    `group` are further ranks of the communicator; those in the node may pass it on.
    """
    cables, devices = node_mesh(system), system.devices_per_node
    if first // devices != last // devices or first == last:
        return 1.0
    if system.intra.torus:
        return neighbour_share(system)
    if not cables:
        return 1.0
    beside = tuple(sorted(rank % devices for rank in group if rank // devices == first // devices))
    rate = pair_rate(cables, first % devices, last % devices, beside)
    whole = whole_rate(system)
    return max(rate, whole) / whole if system.intra.fabric == "pcie" else rate / whole


def _apart(system: System) -> bool:
    """Whether devices of a node have links to some others alone."""
    return bool(system.intra.torus or node_mesh(system))


def least_share(system: System, senders: Sequence[int], receivers: Sequence[int]) -> float:
    """The least share of messages between ranks, each of which may send to each other one."""
    if not _apart(system):
        return 1.0
    group = (*senders, *receivers)
    return min(pair_share(system, a, b, group) for a in senders for b in receivers)


def joint_share(system: System, rank: int, others: Sequence[int]) -> float:
    """Share of equal messages to several others of the node at once, each on cables of its own."""
    devices = system.devices_per_node
    shares = [pair_share(system, rank, o) for o in others if o // devices == rank // devices]
    least = min(shares, default=1.0)
    return max(least, min(least * len(shares), 1.0))


def mean_share(system: System, rank: int, others: Sequence[int]) -> float:
    """Share whose time is the mean over messages to any one of the others in the node."""
    shares = [pair_share(system, rank, other) for other in others if other != rank]
    return len(shares) / sum(1.0 / share for share in shares) if shares else 1.0


def best_share(system: System) -> float:
    """Share that no message between two devices of a node exceeds."""
    cables = node_mesh(system)
    if system.intra.torus:
        return neighbour_share(system)
    if not cables:
        return 1.0
    fastest = max(pair_rate(cables, *pair) for pair in direct_pairs(cables))
    share = fastest / whole_rate(system)
    return max(share, 1.0) if system.intra.fabric == "pcie" else share


def hop_shares(system: System, stride: Ints, pp: int, world: Ints) -> Array:
    """Shares of messages from rank r of a pipeline to r + 1, the last to rank 0, (p, B).

    The least over replicas, of those hops that stay in a node; 1 where none does.
    """
    return _by_case(system, stride, pp, world, lambda rank: (rank + 1) % pp)


def partner_shares(system: System, stride: Ints, pp: int, world: Ints) -> Array:
    """Shares of messages from rank r of a pipeline to rank pp - 1 - r, (p, B), as `hop_shares`."""
    return _by_case(system, stride, pp, world, lambda rank: pp - 1 - rank)


def circle_share(system: System, size: Ints, stride: Ints, world: Ints) -> Array:
    """The least share of messages from each rank of a group to the next one, (B,)."""
    if not _apart(system):
        return np.ones(len(size))
    cases = zip(size.tolist(), stride.tolist(), world.tolist(), strict=True)
    columns = [(n, np.array([q]), np.array([w])) for n, q, w in cases]
    return np.array([hop_shares(system, q, n, w).min() for n, q, w in columns])


def _by_case(
    system: System, stride: Ints, pp: int, world: Ints, other: Callable[[int], int]
) -> Array:
    """Shares between each rank of a pipeline and another one, each distinct case once, (p, B)."""
    if not _apart(system):
        return np.ones((pp, len(stride)))
    cases, back, _ = distinct(stride, world)
    table = [
        [_least(system, (pp, int(q), int(w)), rank, other(rank)) for rank in range(pp)]
        for q, w in zip(*cases, strict=True)
    ]
    shares = np.array(table).T
    return shares if back is None else shares[:, back]


@lru_cache(maxsize=65536)
def _least(system: System, shape: tuple[int, int, int], first: int, last: int) -> float:
    """The least share of messages between two ranks of a pipeline, over all replicas.

    `shape`: pipeline ranks, their stride, ranks in all.
    """
    pp, stride, world = shape
    block = pp * stride
    end = min(world, lcm(block, system.devices_per_node), LONGEST)
    if stride >= system.devices_per_node:  # every rank is in a node of its own
        return 1.0
    return min(
        pair_share(
            system,
            base + first * stride,
            base + last * stride,
            [base + rank * stride for rank in range(pp)],
        )
        for start in range(0, end, block)
        for base in range(start, start + stride)
    )
