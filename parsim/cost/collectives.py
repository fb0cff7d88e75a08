"""Seconds of collectives and of point-to-point messages on a group of ranks.

NCCL chooses the algorithm (ring, tree, NVLS) and protocol (LL, LL128, Simple) with the smallest
latency x steps + bytes / bandwidth. That model, restated from NCCL's tuning tables (2.23 and
later), gives the choice and the shape; a system adds what one call costs (`call_overhead`,
`call_overhead_per_rank`), because the table is a lower bound. Sizes follow nccl-tests: S is the
whole array for all-gather and reduce-scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cluster.placement import group_shape
from parsim.cost.residuals import measured_factor

Array = NDArray[np.float64]
Kind = Literal["all_reduce", "all_gather", "reduce_scatter"]

US = 1e-6
BASE = {("tree", "LL"): 6.8, ("tree", "LL128"): 14.0, ("tree", "Simple"): 8.4,
        ("ring", "LL"): 6.6, ("ring", "LL128"): 14.0, ("ring", "Simple"): 8.4}  # fmt: skip
"""Base latency of a call, us."""
HOP = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4), "nvls": 25.0},
    "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7), "nvls": 25.0},
    "network": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0), "nvls": 18.0},
}  # fmt: skip
"""Latency of one hop, us, for LL, LL128, Simple."""
PROTOCOLS = ("LL", "LL128", "Simple")
PROTOCOL_SHARE = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
"""Share of the bandwidth that carries data: LL sends a flag with every 4 bytes."""
TREE_SHARE = 0.92
"""A tree reaches this share of the ring's channel bandwidth."""
NVLS_TREE_HOP = 20.9
"""Latency of one hop between nodes of an NVLS tree, us."""
NVLS_SHARE = 0.75
"""Algorithm bandwidth of an NVLS all-reduce over the usable link total, for any rank count.

Measured 0.70 to 0.74 on 5 to 8 H200, 0.65 to 0.66 on 6 to 8 B200 (of what NCCL uses of a link).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Placement of one communicator per plan, columns of shape (B,).

    `per_node` ranks of a group share a node, `nodes` is how many nodes a group touches, `sharing`
    how many groups leave one node together and so share its network interfaces.
    """

    size: Array
    per_node: Array
    nodes: Array
    sharing: Array
    leaves: NDArray[np.bool_]


def groups(system: System, *, size: NDArray[np.int64], stride: NDArray[np.int64],
           world: NDArray[np.int64]) -> Groups:  # fmt: skip
    """Place groups of ranks base + i stride, i < size, on nodes; each distinct case once."""
    cases = np.stack([size, stride, world], axis=1)
    distinct, back = np.unique(cases, axis=0, return_inverse=True)
    nodes_per_leaf = system.network.nodes_per_leaf if system.network else 1
    shapes = [
        group_shape(size=int(n), stride=int(q), devices_per_node=system.devices_per_node,
                    world_size=int(w), nodes_per_leaf=nodes_per_leaf)
        for n, q, w in distinct
    ]  # fmt: skip
    table = np.array(
        [(s.size, s.ranks_per_node, s.num_nodes, s.sharing, s.spans_leaves) for s in shapes],
        dtype=np.float64,
    )[back.reshape(-1)]
    return Groups(size=table[:, 0], per_node=table[:, 1], nodes=table[:, 2],
                  sharing=table[:, 3], leaves=table[:, 4] > 0)  # fmt: skip


def link_class(system: System) -> str:
    """Which latency column the links inside a node use."""
    return "pcie" if system.intra.fabric == "pcie" else "nvlink"


def inter_bandwidth(system: System, where: Groups) -> Array:
    """Bandwidth that one group gets out of each node, bytes/s.

    Groups that leave a node together share its interfaces; a group with few ranks in a node
    reaches only the interfaces beside them. A spine divides by its oversubscription.
    """
    network = system.network
    if network is None:
        return np.full(where.size.shape, np.inf)
    share = network.node_bandwidth / np.maximum(where.sharing, 1.0)
    beside = where.per_node * network.node_bandwidth / system.devices_per_node
    reach = np.minimum(share, np.maximum(network.nic_bandwidth, beside))
    spine = np.where(where.leaves, network.oversubscription, 1.0)
    return np.asarray(reach * network.efficiency / spine)


def collective_time(system: System, kind: Kind, size: Array | float, where: Groups) -> Array:
    """Time of one collective on each plan's group; 0 for groups of one rank.

    min over (algorithm, protocol) of steps x latency + S / algbw, plus the system's call overhead.

    Args:
        system: link rates and overheads.
        kind: which collective; trees and NVLS serve all-reduce only.
        size: S bytes, nccl-tests convention.
        where: placement of the groups.

    Source: NCCL tuning tables (src/graph/tuning.cc); plateaus within 7 % of 21 measured rows.
    Leaves out: sharing of links with other traffic, PAT, CollNet, message-size dips of trees.
    """
    size = np.asarray(size, dtype=np.float64)
    best = np.full(np.broadcast_shapes(size.shape, where.size.shape), np.inf)
    for i, protocol in enumerate(PROTOCOLS):
        best = np.minimum(best, _ring(system, kind, size, where, i, protocol))
        if kind == "all_reduce":
            best = np.minimum(best, _tree(system, size, where, i, protocol))
    if kind == "all_reduce" and system.intra.nvls:
        best = np.minimum(best, _nvls(system, size, where))
    overhead = system.call_overhead + system.call_overhead_per_rank * (where.size - 1.0)
    seconds = (best + overhead) * measured_factor(system.residuals, kind, size)
    return np.where((where.size > 1) & (size > 0), seconds, 0.0)


def _intra(system: System) -> float:
    return system.intra.bandwidth * system.intra.efficiency


def _ring(system: System, kind: Kind, size: Array, where: Groups, i: int, protocol: str) -> Array:
    n, nodes = where.size, where.nodes
    rounds = 2.0 if kind == "all_reduce" else 1.0
    intra = HOP[link_class(system)]["ring"][i]  # type: ignore[index]
    inter = HOP["network"]["ring"][i]  # type: ignore[index]
    inter_hops = np.where(nodes > 1, rounds * (nodes - 1.0), 0.0)
    latency = (rounds * (n - 1.0) - inter_hops) * intra + inter_hops * inter
    busbw = np.minimum(_intra(system), np.where(nodes > 1, inter_bandwidth(system, where), np.inf))
    wire = rounds * (n - 1.0) / n * size
    seconds = (BASE["ring", protocol] + latency) * US
    return np.asarray(seconds + wire / (busbw * PROTOCOL_SHARE[protocol]))


def _tree(system: System, size: Array, where: Groups, i: int, protocol: str) -> Array:
    intra = HOP[link_class(system)]["tree"][i]  # type: ignore[index]
    inter = HOP["network"]["tree"][i]  # type: ignore[index]
    depth = np.log2(np.maximum(where.nodes, 1.0))
    latency = 2.0 * ((where.per_node - 1.0) * intra + depth * inter)
    across = np.where(where.nodes > 1, inter_bandwidth(system, where), np.inf)
    # a node that is interior in one of the two trees sends and receives 2 S
    algbw = 0.5 * TREE_SHARE * np.minimum(_intra(system), across)
    seconds = (BASE["tree", protocol] + latency) * US
    return np.asarray(seconds + size / (algbw * PROTOCOL_SHARE[protocol]))


def _nvls(system: System, size: Array, where: Groups) -> Array:
    """The switch reduces and multicasts inside a node; trees join the nodes (NVLS-tree).

    Each of two trees carries half of the array: with two nodes S leaves a node, with more 2 S.
    """
    intra, inter = float(HOP["nvlink"]["nvls"]), NVLS_TREE_HOP  # type: ignore[arg-type]
    latency = intra + 2.0 * np.log2(np.maximum(where.nodes, 1.0)) * inter
    across = np.where(where.nodes > 1, inter_bandwidth(system, where), np.inf)
    algbw = np.minimum(NVLS_SHARE * _intra(system), np.where(where.nodes > 2, 0.5, 1.0) * across)
    whole = where.per_node == system.devices_per_node
    return np.where((where.nodes == 1) | whole, latency * US + size / algbw, np.inf)


def p2p_time(system: System, size: Array | float, *, crosses: NDArray[np.bool_] | bool,
             sharing: Array | float) -> Array:  # fmt: skip
    """Time of one message between two ranks.

    latency + S / bandwidth; across nodes the senders of one node share its interfaces.

    Args:
        system: link rates.
        size: bytes of the message.
        crosses: whether the message leaves the node.
        sharing: how many ranks of a node send at the same time.

    Source: alpha-beta model; latency of one hop and one call from the system file.
    Leaves out: protocol switch of small messages, other traffic on the same links.
    """
    size = np.asarray(size, dtype=np.float64)
    inside = system.intra.latency + size / _intra(system)
    network = system.network
    if network is None:
        across = np.full(size.shape, np.inf)
    else:
        lane = np.minimum(network.nic_bandwidth, network.node_bandwidth / np.maximum(sharing, 1.0))
        across = network.latency + size / (lane * network.efficiency)
    seconds = np.where(crosses, across, inside) + system.call_overhead
    return np.where(size > 0, seconds * measured_factor(system.residuals, "send_recv", size), 0.0)
