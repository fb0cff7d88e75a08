"""Shares of a device's links that lead to others of its group, where a node is a torus of devices.

    axis of 8, links both ways round        0 ═ 1 ═ 2 ═ 3 ═ 4 ═ 5 ═ 6 ═ 7 ═ (0)
    all 8           a ring each way:        2 links of a device
    0, 1, 2, 3      out and back a line:    1
    0, 2, 4, 6      every other device:     2 / 2, the other half's ring has as much

A group that spreads over several axes splits its bytes over rings along each of them. Devices lie
row by row, the last axis fastest, as ranks do.

Source: collectives of XLA on TPUs; "axes" of the mesh in jax-ml.github.io/scaling-book, sharding.
Leaves out: bisection, which bounds an all-to-all; an order of axes chosen for a mesh of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from parsim.cluster.hardware import System
from parsim.cluster.topology.fabrics import torus_shape

_WAYS = 2.0
"""Links of a device along an axis: one each way."""


def torus_share(system: System, members: Sequence[int]) -> float:
    """Share of a device's links that its node's members of a group have among themselves."""
    return _share(system.devices_per_node, system.intra.torus, tuple(sorted(members)))


def neighbour_share(system: System) -> float:
    """Share that one message has: a single link, as to a neighbour."""
    return 1.0 / (_WAYS * len(torus_shape(system.devices_per_node, system.intra.torus)))


@lru_cache(maxsize=65536)
def _share(devices: int, axes: int, members: tuple[int, ...]) -> float:
    shape = torus_shape(devices, axes)
    places = np.unravel_index(np.array(members), shape)
    links = [
        axis_links(sorted(set(along.tolist())), size)
        for along, size in zip(places, shape, strict=True)
    ]
    return sum(links) / (_WAYS * len(shape))


def axis_links(places: Sequence[int], size: int) -> float:
    """Links along one axis that a device of a group at these places has for the group alone."""
    count = len(places)
    if count == 1:
        return 0.0
    line = places[-1] - places[0] == count - 1
    return 1.0 if line and count < size else _WAYS * count / size
