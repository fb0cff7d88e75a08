"""Shares of a device's links that lead to others of its group, where cables join devices directly.

A switch gives every group all links of a device: 1. In a mesh a group has the cables among its own
members (`parsim/cluster/topology/mesh.py`), so that a pair of a DGX-1 has one or two links of six;
above 1 are bridged cards, whose cables are faster than the PCI Express that joins all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import lcm

import numpy as np

from parsim.arrays import Array, Ints, distinct
from parsim.cluster.hardware import System
from parsim.cluster.topology.mesh import all_devices, group_rates, has_ring, node_mesh
from parsim.cost.collective.torus_links import torus_share

_ALL = (1.0, 1.0)
LONGEST = 1 << 16
"""Ranks that are looked at, so many that every placement on nodes of usual sizes comes again."""


def members_share(system: System, members: Sequence[int]) -> tuple[float, float]:
    """Find the shares of a device's rate that a node's members of a group have: rings and pairs."""
    if len(members) < 2:
        return _ALL
    if system.intra.torus:
        share = torus_share(system, members)
        return share, share
    if not node_mesh(system):
        return _ALL
    return _group_share(system, tuple(sorted(members)))


@lru_cache(maxsize=65536)
def _group_share(system: System, group: tuple[int, ...]) -> tuple[float, float]:
    cables, whole, pcie = node_mesh(system), whole_rate(system), system.intra.fabric == "pcie"
    if pcie and not has_ring(cables, group):
        return _ALL
    rates = group_rates(cables, group)
    # cards beside a bridge reach each other over PCI Express, in an all-to-all as in a ring
    return rates.ring / whole, max(rates.pairs, whole if pcie else 0.0) / whole


def ranks_share(system: System, ranks: Sequence[int]) -> tuple[float, float]:
    """Shares of one group of ranks, wherever they are: those of the node that has the least."""
    nodes: dict[int, list[int]] = {}
    for rank in ranks:
        nodes.setdefault(rank // system.devices_per_node, []).append(rank % system.devices_per_node)
    ring, pairs = zip(
        *(members_share(system, sorted(set(part))) for part in nodes.values()), strict=True
    )
    return min(ring), min(pairs)


@lru_cache(maxsize=256)
def whole_rate(system: System) -> float:
    """What `IntraNode.rate` stands for: rings of all devices, or the rate of who have none."""
    cables = node_mesh(system)
    everybody = all_devices(cables)
    return group_rates(cables, everybody).ring if has_ring(cables, everybody) else system.intra.rate


def groups_share(
    system: System,
    size: Ints,
    stride: Ints,
    rows: Ints | int,
    row_stride: Ints | int,
    world: Ints,
) -> Array:
    """Shares of the worst-placed groups of each case (see `Ranks`): rings and pairs, (2, B)."""
    columns = (size, stride, rows, row_stride, world)
    if not node_mesh(system) and not system.intra.torus:
        return np.ones((2, len(size)))
    cases, back, _ = distinct(*columns)
    table = []
    for case in zip(*cases, strict=True):
        shape = tuple(int(value) for value in case)
        parts = _members(shape, system.devices_per_node)
        table.append(np.min([members_share(system, part) for part in parts] or [_ALL], axis=0))
    shares = np.array(table).T
    return shares if back is None else shares[:, back]


@lru_cache(maxsize=65536)
def _members(shape: tuple[int, int, int, int, int], devices: int) -> frozenset[tuple[int, ...]]:
    """Devices that groups have in a node, two or more, each set of them once.

    Args:
        shape: size, stride, rows, row stride and ranks in all.
        devices: devices of a node.
    """
    size, stride, rows, row_stride, world = shape
    block = max(size * stride, rows * row_stride)
    ranks = np.arange(min(world, lcm(block, devices), LONGEST))
    base = ranks - ranks // stride % size * stride
    base = base - (ranks // row_stride % rows * row_stride if rows > 1 else 0)
    together: dict[tuple[int, int], list[int]] = {}
    for rank, group in zip(ranks.tolist(), base.tolist(), strict=True):
        together.setdefault((group, rank // devices), []).append(rank % devices)
    return frozenset(tuple(part) for part in together.values() if len(part) > 1)
