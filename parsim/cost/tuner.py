"""Collectives whose algorithm a plugin of the system chooses instead of NCCL.

AWS's plugin takes an all-reduce's algorithm and protocol from maps over bytes and ranks, kept in
`tuners.yaml`. What it takes is often not the fastest, so such a call costs what that algorithm
does, where a call that NCCL chooses itself costs the best algorithm's seconds (`shape.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.nccl import Protocol, table
from parsim.cost.placed import Groups
from parsim.cost.shape import (
    CONSTANTS,
    Algorithm,
    Constants,
    Kind,
    bandwidths,
    measured,
    modelled,
)

Array = NDArray[np.float64]

MOST = (100.0 * 2.0**30, 2.0**20)
"""Where the plugin's maps end, bytes and ranks."""
ON_EDGE = 1e-10
FEWEST_NODES = 3
"""Below, the plugin leaves the choice to NCCL."""
PER_NODE = 8
LL128_ACROSS = 0.737
"""What LL128 leaves of a ring's bandwidth between nodes: 283 of 384 GB/s, the slope from 256 MiB to
1 GiB of 4 x 8 H100 over EFA, where the plugin takes it (data/network/curves.csv, p5.48xlarge)."""
LL128_STEP = 7e-6
"""What a step inside a node takes in an LL128 ring that leaves it: 64 MiB of the same group."""
LL128_ALONE = 2.1
"""What one channel of such a ring could send over its share of the interfaces: NCCL's cap of
36.7 GB/s over 283 / 16 of 16 channels."""
PROTOCOLS: dict[Protocol, float] = {"LL": 0.5, "LL128": LL128_ACROSS, "Simple": 1.0}


@dataclass(frozen=True, slots=True)
class Region:
    """A polygon, logarithms of bytes and ranks to base 2, and what is taken inside it."""

    algorithm: Algorithm
    protocol: Protocol
    x: tuple[float, ...]
    y: tuple[float, ...]

    def holds(self, x: Array, y: Array) -> NDArray[np.bool_]:
        """Which points lie inside or on an edge: a ray towards larger x crosses an odd number."""
        odd, edge = np.zeros(x.shape, dtype=bool), np.zeros(x.shape, dtype=bool)
        ends = zip(self.x[1:] + self.x[:1], self.y[1:] + self.y[:1], strict=True)
        for x0, y0, (x1, y1) in zip(self.x, self.y, ends, strict=True):
            across, along = (x1 - x0) * (y - y0) - (x - x0) * (y1 - y0), np.hypot(x1 - x0, y1 - y0)
            near = np.abs(across) <= ON_EDGE * max(float(along), ON_EDGE)
            between = (np.minimum(x0, x1) <= x) & (x <= np.maximum(x0, x1))
            edge |= near & between & (np.minimum(y0, y1) <= y) & (y <= np.maximum(y0, y1))
            rising = y1 > y0
            odd ^= ((y0 > y) != (y1 > y)) & ((across < 0) != rising)
        return odd | edge


@cache
def regions(tuner: str, kind: Kind) -> tuple[Region, ...]:
    """A plugin's map of one collective, in its order; none: it leaves that kind to NCCL."""
    from ruamel.yaml import YAML

    text = (files("parsim.cost") / "tuners.yaml").read_text(encoding="utf-8")
    entry = YAML(typ="safe", pure=True).load(text)[tuner]
    return tuple(_region(one) for one in entry.get(kind, ()))


def _region(entry: dict[str, Any]) -> Region:
    corners = [_corner(corner) for corner in entry["corners"]]
    x, y = zip(*corners, strict=True)
    return Region(entry["algorithm"], entry["protocol"], x, y)


def _corner(corner: list[Any]) -> tuple[float, float]:
    """A corner's logarithms; of four numbers, where the line through two points leaves the map."""
    far = float(np.log2(MOST[0])), float(np.log2(MOST[1]))
    logs = [
        far[place % 2] if value == "most" else float(np.log2(max(float(value), 1.0)))
        for place, value in enumerate(corner)
    ]
    if len(logs) == 2:
        return logs[0], logs[1]
    x0, y0, x1, y1 = logs
    if x0 == x1:
        return x1, far[1]
    slope = (y1 - y0) / (x1 - x0)
    reached = y1 + slope * (far[0] - x1)
    if reached < far[1]:
        return far[0], reached
    return x1 + (far[1] - y1) / slope, far[1]


def chosen(system: System, kind: Kind, size: Array, where: Groups) -> NDArray[np.int64]:
    """Index of the region that the plugin takes for each call, (B,); -1: NCCL or a measured curve.

    Only whole nodes of 8, three or more: the plugin's maps are for those.
    """
    size, ranks = np.broadcast_arrays(np.asarray(size, dtype=np.float64), where.size)
    found = np.full(size.shape, -1, dtype=np.int64)
    if system.tuner is None or system.devices_per_node != PER_NODE:
        return found
    able = (where.nodes >= FEWEST_NODES) & (where.per_node == PER_NODE)
    able = able & ~measured(system, kind, where)
    x, y = np.log2(np.maximum(size, 1.0)), np.log2(np.maximum(ranks, 1.0))
    for place, one in enumerate(regions(system.tuner, kind)):
        found = np.where(able & (found < 0) & one.holds(x, y), place, found)
    return found


def tuned(system: System, kind: Kind, size: Array, where: Groups, seconds: Array) -> Array:
    """The seconds, replaced where the system's plugin chooses the algorithm."""
    found = chosen(system, kind, size, where)
    for place in np.unique(found[found >= 0]):
        one = regions(system.tuner or "", kind)[place]
        own = algorithm_seconds(system, kind, size, where, one.algorithm, one.protocol)
        seconds = np.where(found == place, own, seconds)
    return np.asarray(seconds)


def algorithm_seconds(system: System, kind: Kind, size: Array, where: Groups,
                      algorithm: Algorithm, protocol: Protocol,
                      constants: Constants = CONSTANTS) -> Array:  # fmt: skip
    """Seconds of one algorithm and protocol across nodes, S bytes.

    ring, Simple: latency and ramp of `modelled`, the ring's own bandwidth B.
    ring, LL128: call + max(S / B, path + S / (2.1 B)). The channels fill the interfaces in turn;
    a short message waits for its own steps, of which a channel has one under way.
    trees: call + (sqrt(S / B) + sqrt(path))^2, the least time of k chunks that follow each other
    over D hops of latency L, (k + D) (S / (k B) + L), path = D L. Up and down the tree the path
    has 2 log2(nodes) crossings of the network and, without NVLS, 2 (r - 1) hops in a node of r.

    No call takes less than the latency of `modelled`, which holds what small messages wait for.

    Source: bandwidths of `shape.py` times `PROTOCOLS`, hops of `nccl.yaml`, the system's latency.
    Leaves out: chunks that NCCL rounds to its buffers.
    """
    rate = bandwidths(system, kind, where, constants)[algorithm] * PROTOCOLS[protocol]
    found = modelled(system, kind, where, constants)
    if algorithm == "ring" and protocol == "Simple":
        return replace(found, bandwidth=rate).seconds(size)
    sending = size / np.maximum(rate, 1.0)
    path = _path(system, where, algorithm, protocol, constants)
    if algorithm == "ring":
        seconds = np.maximum(sending, path + sending / LL128_ALONE)
    else:
        seconds = (np.sqrt(sending) + np.sqrt(path)) ** 2
    return np.asarray(np.maximum(constants.call + seconds, found.latency))


def _path(system: System, where: Groups, algorithm: Algorithm, protocol: Protocol,
          constants: Constants) -> Array:  # fmt: skip
    """Seconds in which a byte goes all the way: round twice, or up the tree and down again."""
    crossing = system.network.latency if system.network else constants.usual
    if algorithm == "ring":
        inside = LL128_STEP * (where.size - where.nodes)
        return np.asarray(2.0 * (inside + where.nodes * (constants.ring_across + crossing)))
    inside = 0.0 * where.nodes
    if algorithm == "tree":
        hops = table(system.library)["hop_us"]["nvlink"]["tree"]
        place = ("LL", "LL128", "Simple").index(protocol)
        inside = hops[place] * 1e-6 * (where.per_node - 1.0)
    return np.asarray(2.0 * (inside + np.log2(where.nodes) * crossing))
