"""Seconds of averages between workers: all of them, those of a node, neighbours, pairs."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.server_rates import device_interface, node_interfaces
from parsim.sim.data_parallel.workers import Workers
from parsim.strategy.gossip import neighbours


def node_average(workers: Workers) -> float:
    """Seconds of an all-reduce among a node's workers, of the slowest node."""
    seconds = []
    for node in workers.nodes:
        system = workers.systems[int(workers.node[node[0]])]
        where = one_group(system, len(node))
        size = workers.gradient_bytes
        seconds.append(float(collective_time(system, "all_reduce", size, where, queued=True)[0]))
    return max(seconds)


def neighbour_exchange(workers: Workers, topology: str) -> Array:
    """Seconds in which each worker sends its weights to all its neighbours, (n,).

    Weights for neighbours of its node go over the links inside, the others over its interfaces,
    which the workers of a node share, at once; (P out and P in for each neighbour, full duplex).
    """
    count, seconds = workers.count, np.zeros(workers.count)
    others = [neighbours(rank, count, topology) for rank in range(count)]
    far = np.array(
        [sum(workers.node[o] != workers.node[r] for o in others[r]) for r in range(count)]
    )
    for rank in range(count):
        system = workers.systems[int(workers.node[rank])]
        near = len(others[rank]) - far[rank]
        inside = near * workers.weight_bytes / (system.intra.bandwidth * system.intra.efficiency)
        node = far[workers.node == workers.node[rank]].sum()
        across = max(
            far[rank] * workers.weight_bytes / device_interface(system),
            node * workers.weight_bytes / node_interfaces(system),
        )
        latency = float(p2p_time(system, 1.0, crosses=bool(far[rank]), sharing=1.0))
        seconds[rank] = latency + max(inside, across)
    return seconds


def pair_exchange(workers: Workers) -> Array:
    """Seconds of an average with a drawn peer, (n,): P out and P in at once.

    With several nodes a peer is mostly on another one, and a node's workers share its interfaces.
    """
    several = len(workers.systems) > 1
    seconds = np.zeros(workers.count)
    for rank, node in enumerate(workers.node.tolist()):
        system = workers.systems[node]
        rate = system.intra.bandwidth * system.intra.efficiency
        if several:
            rate = min(rate, node_interfaces(system) / float((workers.node == node).sum()))
        latency = float(p2p_time(system, 1.0, crosses=several, sharing=1.0))
        seconds[rank] = latency + workers.weight_bytes / rate
    return seconds
