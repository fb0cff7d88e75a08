"""The shape of a collective from links and constants alone, and what no collective undercuts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import GLOO, Groups, gloo_bandwidth, inter_bandwidth
from parsim.cost.collective.kinds import (
    CONSTANTS,
    Algorithm,
    CollectiveKind,
    Constants,
    generation,
    stepped,
    usual_hop,
    wire_share,
)
from parsim.units import MIB

ONE = np.ones(1)
RANKS = 8.0
"""The ramp constants are those of 8 ranks in a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Latency (s), bandwidth (bytes/s of S) and ramp (s at 1 MiB), (B,).

    `slow` (s, B) is the latency that messages of `full` bytes (B,) and more have beyond that of
    empty ones, those between their share of it.
    """

    latency: Array
    bandwidth: Array
    ramp: Array
    slow: Array | float = 0.0
    full: Array | float = 1.0

    def waiting(self, size: Array | float) -> Array:
        """Latency of a message of S bytes."""
        size = np.asarray(size, dtype=np.float64)
        return np.asarray(self.latency + self.slow * np.minimum(size / self.full, 1.0))

    def seconds(self, size: Array | float) -> Array:
        """Time of S bytes."""
        size = np.asarray(size, dtype=np.float64)
        return np.asarray(
            self.waiting(size) + size / self.bandwidth + self.ramp * np.sqrt(size / MIB)
        )


def modelled(
    system: System, kind: CollectiveKind, where: Groups, constants: Constants = CONSTANTS
) -> Shape:
    """The shape from links and constants alone, best algorithm of a large message.

    latency = call + hop steps + (across + crossings (network - usual)) log2(nodes), network the
    system's latency; steps = 2 (r - 1) of an all-reduce over r ranks in a node, half of that else.
    Gathers and reduce-scatters of n ranks on N nodes have no tree: at least call + (n - N) ring_hop
    + N (ring_across + network - usual), which leads from 16 nodes of 8 on a usual network; the
    second pair of steps from n pieces of `ring_full` bytes on. Hops are those of the system's links
    (`stepped`). ramp = ramp of the generation sqrt(r / 8), half for collectives of n - 1
    steps. gloo has a bandwidth alone.
    """
    if system.library == GLOO:
        rates = gloo_bandwidth(system, kind, where)
        return Shape(latency=np.zeros_like(rates), bandwidth=rates, ramp=np.zeros_like(rates))
    steps = 2.0 if kind == "all_reduce" else 1.0
    small, large = (_latency(system, kind, where, constants, steps, way) for way in (0, 1))
    ring = kind in ("all_gather", "reduce_scatter")
    ramp = constants.ramp[generation(system)] * np.sqrt(where.per_node / RANKS) * steps / 2.0
    ramp = ramp * np.where(where.nodes > 1, constants.ramp_across, 1.0)
    best = np.max(np.stack(list(bandwidths(system, kind, where, constants).values())), axis=0)
    return Shape(
        latency=small,
        bandwidth=best,
        ramp=np.asarray(ramp),
        slow=large - small,
        full=constants.ring_full * where.size if ring else constants.full,
    )


def _latency(
    system: System,
    kind: CollectiveKind,
    where: Groups,
    constants: Constants,
    steps: float,
    large: int,
) -> Array:
    """Seconds of an empty message (0), or what a large one (1) takes beyond its bytes, (B,)."""
    network = system.network.latency if system.network else constants.usual
    each = (constants.across_small, constants.across)[large]
    doubling = each + constants.crossings * (network - constants.usual)
    hop = stepped(constants.hop, system.intra.latency, usual_hop(system, constants))
    latency = constants.call + hop * steps * (where.per_node - 1.0)
    latency = latency + doubling * np.log2(np.maximum(where.nodes, 1.0))
    if kind in ("all_gather", "reduce_scatter"):
        latency = np.maximum(latency, _ring_latency(system, where, constants, large))
    return np.asarray(latency)


def _ring_latency(system: System, where: Groups, constants: Constants, large: int) -> Array:
    """Seconds in which the last piece goes all the way round; nothing inside a node."""
    hop = stepped(constants.ring_hop[large], system.intra.latency, usual_hop(system, constants))
    network = system.network.latency if system.network else constants.usual
    across = constants.ring_across[large] + (network - constants.usual)
    steps = constants.call + hop * (where.size - where.nodes) + across * where.nodes
    return np.asarray(np.where(where.nodes > 1, steps, 0.0))


def bandwidths(
    system: System, kind: CollectiveKind, where: Groups, constants: Constants = CONSTANTS
) -> dict[Algorithm, Array]:
    """Bandwidth (bytes/s of S) that each algorithm tends to; 0 where a group cannot use it.

    A group has the links among its members (`Groups.ring_share`); an all-to-all's are shared by
    pairs. ring: min(link, interfaces) / wire share. tree: 0.92 / 2 of it, because a node inside one
    of two trees sends 2 S, but S where two nodes have a rank each (NCCL: src/graph/trees.cc).
    nvls: constant in the rank count, because the switch reduces; joined by trees, S leaves each of
    two nodes, 2 S each of more. collnet: switches between nodes reduce.
    """
    link = system.intra.rate * where.ring_share
    out = np.where(where.nodes > 1, inter_bandwidth(system, where), np.inf)
    if kind == "all_to_all":
        return {"p2p": _pairs(system, where, constants)}
    slowest = np.minimum(link, out)
    rates: dict[Algorithm, Array] = {"ring": slowest / wire_share(kind, np.maximum(where.size, 2))}
    if kind == "all_reduce":
        rates["ring"] = rates["ring"] * _busy(system, where, constants)
    if kind in ("all_gather", "reduce_scatter"):
        rates["pat"] = np.where((where.per_node == 1) & (where.nodes > 1), 0.75 * rates["ring"], 0)
    if kind != "all_reduce":
        return rates
    # of two lone ranks each is the root of one tree and the leaf of the other: S / 2 up and down
    alone = (where.size == 2) & (where.per_node == 1)
    rates["tree"] = np.where(alone, 1.0, 0.5) * constants.tree * slowest
    whole = (where.nodes == 1) | (where.per_node == system.devices_per_node)
    if system.intra.nvls:
        rates |= _in_switch(system, where, constants, link, out, whole)
    if system.network is not None and system.network.sharp:
        share = wire_share(kind, np.maximum(where.per_node, 2.0))
        inside = np.maximum(constants.collnet * link / share, rates.get("nvls", 0))
        rates["collnet"] = np.where(whole & (where.nodes > 1), np.minimum(inside, out), 0.0)
    return rates


def _pairs(system: System, where: Groups, constants: Constants) -> Array:
    """Bandwidth of an all-to-all: every rank sends to every other."""
    straight = inter_bandwidth(system, replace(where, crossing=ONE))
    inside = constants.all_to_all * system.intra.rate * where.pair_share
    return _all_to_all(inside, np.where(where.nodes > 1, straight, np.inf), where)


def _in_switch(
    system: System, where: Groups, constants: Constants, link: Array, out: Array, whole: Flags
) -> dict[Algorithm, Array]:
    """Bandwidth of all-reduces that a node's switch adds up, alone or joined by trees.

    Args:
        system: its links.
        where: the groups.
        constants: shares of the link that switches reach.
        link: bytes/s of a rank's links in its node.
        out: bytes/s out of a node; inf of groups of one.
        whole: which groups hold all devices of their nodes, or lie in one.
    """
    made = generation(system)
    able = whole & (where.per_node >= constants.nvls_ranks.get(made, RANKS))
    reduced = constants.nvls.get(made, 0.71) * link
    joined = np.minimum(constants.nvls_nodes * reduced, out * np.where(where.nodes > 2, 0.5, 1))
    return {
        "nvls": np.where(able & (where.nodes == 1), reduced, 0.0),
        "nvls_tree": np.where(able & (where.nodes > 1), joined, 0.0),
    }


def _busy(system: System, where: Groups, constants: Constants) -> Array:
    """What few ranks in a node reach of the bandwidth of a ring of 8, whose share the catalog has.

    (1 + idle / 14) / (1 + idle / (2 (n - 1))): of the 2 (n - 1) steps in which a chunk goes round
    twice, a part `idle` of one step's length passes with nothing on the links; 14 with 8 ranks.

    Source: `Constants.idle`.
    Leaves out: gathers and reduce-scatters, of which no curve of few ranks is public.
    """
    bridged = system.intra.fabric == "nvlink-mesh" and system.devices_per_node == 2
    idle = constants.idle.get("bridge" if bridged else generation(system), 0.0)
    ranks = np.clip(where.size, 2.0, RANKS)
    steps = 2.0 * (ranks - 1.0)
    reached = (1.0 + idle / (2.0 * (RANKS - 1.0))) / (1.0 + idle / steps)
    return np.asarray(np.where(where.nodes == 1, reached, 1.0))


def _all_to_all(link: Array, out: Array, where: Groups) -> Array:
    """Every rank sends S / n to each other one; links and interfaces work at the same time."""
    inside = (where.per_node - 1.0) / where.size / link
    across = where.per_node * (where.size - where.per_node) / where.size / out
    return np.asarray(1.0 / np.maximum(np.maximum(inside, across), 1e-30))


def least_seconds(system: System, kind: CollectiveKind, size: Array, where: Groups) -> Array:
    """What no collective undercuts: the bytes of the leanest algorithm over the raw link rates.

    Of S, each rank sends its wire share, with NVLS (n + 1)/n of an all-reduce; of N nodes each
    sends (N - 1)/N, twice for an all-reduce.
    """
    ranks = np.maximum(where.size, 2.0)
    wire = wire_share(kind, ranks)
    if kind == "all_reduce" and system.intra.nvls:
        wire = np.minimum(wire, (ranks + 1.0) / ranks)
    link = system.intra.bandwidth * np.maximum(where.ring_share, where.pair_share)
    inside = np.where(where.per_node > 1, wire * size / link, 0.0)
    if system.network is None:
        return np.asarray(inside)
    rate = inter_bandwidth(system, where) / system.network.efficiency
    twice = 2.0 if kind == "all_reduce" and not system.network.sharp else 1.0
    leaving = np.where(where.nodes > 1, twice * (where.nodes - 1.0) / where.nodes, 0.0)
    return np.asarray(np.maximum(inside, leaving * size / rate))
