"""Collectives whose algorithm a plugin of the system chooses instead of NCCL.

AWS's plugin takes an all-reduce's algorithm and protocol from maps over bytes and ranks, kept in
`tuners.yaml`. What it takes is often not the fastest, so such a call costs what that algorithm
does, where a call that NCCL chooses itself costs the best algorithm's seconds (`modelled.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from parsim.arrays import Array, Flags, Index, sorted_values
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.kinds import CONSTANTS, Algorithm, CollectiveKind
from parsim.cost.collective.measured_curve import measured
from parsim.cost.collective.modelled import bandwidths, modelled
from parsim.cost.collective.nccl import Protocol, table
from parsim.units import GIB

MOST_MAPPED = (100.0 * GIB, 2.0**20)
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
BANDWIDTH_SHARES: dict[Protocol, float] = {"LL": 0.5, "LL128": LL128_ACROSS, "Simple": 1.0}


@dataclass(frozen=True, slots=True)
class Area:
    """A polygon, logarithms of bytes and ranks to base 2, and what is taken inside it."""

    algorithm: Algorithm
    protocol: Protocol
    x: tuple[float, ...]
    y: tuple[float, ...]

    def holds(self, x: Array, y: Array) -> Flags:
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
def areas(tuner: str, kind: CollectiveKind) -> tuple[Area, ...]:
    """A plugin's map of one collective, in its order; none: it leaves that kind to NCCL."""
    from ruamel.yaml import YAML

    text = (files("parsim.cost") / "tuners.yaml").read_text(encoding="utf-8")
    entry = YAML(typ="safe", pure=True).load(text)[tuner]
    return tuple(_area(shape) for shape in entry.get(kind, ()))


def _area(entry: dict[str, Any]) -> Area:
    corners = [_corner(corner) for corner in entry["corners"]]
    x, y = zip(*corners, strict=True)
    return Area(entry["algorithm"], entry["protocol"], x, y)


def _corner(corner: list[Any]) -> tuple[float, float]:
    """A corner's logarithms; of four numbers, where the line through two points leaves the map."""
    far = float(np.log2(MOST_MAPPED[0])), float(np.log2(MOST_MAPPED[1]))
    logs = [
        far[position % 2] if value == "most" else float(np.log2(max(float(value), 1.0)))
        for position, value in enumerate(corner)
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


def chosen(system: System, kind: CollectiveKind, size: Array, where: Groups) -> Index:
    """Index of the region that the plugin takes for each call, (B,); -1: NCCL or a measured curve.

    Only whole nodes of 8, three or more: the plugin's maps are for those.
    """
    size, ranks = np.broadcast_arrays(np.asarray(size, dtype=np.float64), where.size)
    taken = np.full(size.shape, -1, dtype=np.int64)
    if system.tuner is None or system.devices_per_node != PER_NODE:
        return taken
    able = (where.nodes >= FEWEST_NODES) & (where.per_node == PER_NODE)
    able = able & ~measured(system, kind, where)
    x, y = np.log2(np.maximum(size, 1.0)), np.log2(np.maximum(ranks, 1.0))
    for index, area in enumerate(areas(system.tuner, kind)):
        taken = np.where(able & (taken < 0) & area.holds(x, y), index, taken)
    return taken


def tuned(
    system: System, kind: CollectiveKind, size: Array, where: Groups, seconds: Array
) -> Array:
    """The seconds, replaced where the system's plugin chooses the algorithm."""
    taken = chosen(system, kind, size, where)
    for index in sorted_values(taken[taken >= 0]):
        area = areas(system.tuner or "", kind)[index]
        instead = algorithm_seconds(system, kind, size, where, area.algorithm, area.protocol)
        seconds = np.where(taken == index, instead, seconds)
    return np.asarray(seconds)


def algorithm_seconds(
    system: System,
    kind: CollectiveKind,
    size: Array,
    where: Groups,
    algorithm: Algorithm,
    protocol: Protocol,
) -> Array:
    """Seconds of one algorithm and protocol across nodes, S bytes.

    ring, Simple: latency and ramp of `modelled`, the ring's own bandwidth B.
    ring, LL128: call + max(S / B, path + S / (2.1 B)). The channels fill the interfaces in turn;
    a short message waits for its own steps, of which a channel has one under way.
    trees: call + (sqrt(S / B) + sqrt(path))^2, the least time of k chunks that follow each other
    over D hops of latency L, (k + D) (S / (k B) + L), path = D L. Up and down the tree the path
    has 2 log2(nodes) crossings of the network and, without NVLS, 2 (r - 1) hops in a node of r.

    No call takes less than the latency of `modelled`, which holds what small messages wait for.

    Source: bandwidths of `modelled.py` times `BANDWIDTH_SHARES`, hops of `nccl.yaml`,
    the system's latency.
    Leaves out: chunks that NCCL rounds to its buffers.
    """
    rate = bandwidths(system, kind, where)[algorithm] * BANDWIDTH_SHARES[protocol]
    best = modelled(system, kind, where)
    if algorithm == "ring" and protocol == "Simple":
        return replace(best, bandwidth=rate).seconds(size)
    sending = size / np.maximum(rate, 1.0)
    path = _path(system, where, algorithm, protocol)
    if algorithm == "ring":
        seconds = np.maximum(sending, path + sending / LL128_ALONE)
    else:
        seconds = (np.sqrt(sending) + np.sqrt(path)) ** 2
    return np.asarray(np.maximum(CONSTANTS.call + seconds, best.waiting(size)))


def _path(system: System, where: Groups, algorithm: Algorithm, protocol: Protocol) -> Array:
    """Seconds in which a byte goes all the way: round twice, or up the tree and down again."""
    crossing = system.network.latency if system.network else CONSTANTS.usual
    if algorithm == "ring":
        inside = LL128_STEP * (where.size - where.nodes)
        return np.asarray(2.0 * (inside + where.nodes * (CONSTANTS.ring_across[0] + crossing)))
    inside = 0.0 * where.nodes
    if algorithm == "tree":
        hops = table(system.library)["hop_us"]["nvlink"]["tree"]
        column = ("LL", "LL128", "Simple").index(protocol)
        inside = hops[column] * 1e-6 * (where.per_node - 1.0)
    return np.asarray(2.0 * (inside + np.log2(where.nodes) * crossing))
