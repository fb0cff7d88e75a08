"""How fast a device reaches its host, devices beside it and other nodes, and a host its memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from parsim.arrays import Index
from parsim.cluster.hardware import System
from parsim.cluster.topology.node_cables import node_cables
from parsim.cost.collective.collectives import p2p_time
from parsim.errors import PlanError

STREAM_SHARE = 0.8
"""Share of the memory channels' rate that reading and writing long arrays reaches. Assumption:
STREAM on servers of two sockets gives 0.75 to 0.85 of it."""


@lru_cache(maxsize=64)
def host_link(system: System, asked: str = "strategy.on=hosts") -> float:
    """Bytes/s of a device's way to its host, one direction: the slowest of its cables there.

    PCI Express or NVLink-C2C, by the cables of `cluster/topology`; shared memory, where that joins
    the devices. `asked` is the field of a plan that needs it.

    Raises:
        PlanError: the system's own topology has no such cable.
    """
    # the way to the host does not hang on how NVLinks join the devices
    meshed = system.intra.meshed and not system.topology
    like = replace(system, intra=replace(system.intra, fabric="nvswitch")) if meshed else system
    cables = [
        cable
        for cable in node_cables(like)
        if "gpu:0" in (cable.source, cable.target)
        and cable.link_class in ("pcie", "c2c", "shared-memory", "cpu")
    ]
    if not cables:
        raise PlanError(
            f"{asked}: system {system.id} has no cable from a device to its host in its "
            f"topology; write one, or leave {asked.partition('=')[0]} out"
        )
    return max(cable.bandwidth * cable.efficiency for cable in cables)


def host_memory(system: System) -> float:
    """Bytes/s that the memory of a node's host moves, reads and writes together.

    Raises:
        PlanError: the system does not say.
    """
    if system.host_bandwidth is None:
        raise PlanError(f"system {system.id} says nothing of its host's memory: host_bandwidth")
    return STREAM_SHARE * system.host_bandwidth


def host_rate(system: System, asked: str = "offload_layers") -> float:
    """Bytes/s between one device and its host, one direction, while all devices copy.

    A device that is its host reads and writes its own memory.
    """
    if system.on_cpu:
        return system.device.memory_bandwidth * system.device.memory_efficiency / 2.0
    link = host_link(system, asked)
    if system.host_bandwidth is None:
        return link
    return min(link, host_memory(system) / system.devices_per_node)


def near_seconds(system: System, sent: float, received: float, share: float = 1.0) -> float:
    """Seconds in which a device sends and receives so many bytes inside its node, at once.

    max(s, r) + loss min(s, r) bytes at the rate of a message, where bytes the other way are lost
    (`System.two_way_loss`); of full-duplex links nothing is, and what a device receives is another
    one's to send. `share` is that of `p2p_time`.
    Source: gloo between two cores of one machine, 7.2, 14.4 and 28.8 MB: 2.9, 4.6 and 7.0 ms one
    way, 3.6, 8.7 and 15.3 ms with as much the other way.
    """
    size = sent
    if system.two_way_loss:
        size = max(sent, received) + system.two_way_loss * min(sent, received)
    sizes = np.array([size, 1.0])
    seconds = p2p_time(system, sizes, crosses=False, sharing=1.0, share=share)
    return float(max(seconds[0] - seconds[1], 0.0)) if size else 0.0


def node_interfaces(system: System) -> float:
    """Bytes/s out of a node and into it, all interfaces together; endless without a network."""
    network = system.network
    return network.node_bandwidth * network.efficiency if network else float("inf")


def device_interface(system: System) -> float:
    """Bytes/s that a device alone gets out of its node: the interfaces beside it."""
    network = system.network
    if network is None:
        return float("inf")
    beside = max(network.nic_bandwidth, network.node_bandwidth / system.devices_per_node)
    return beside * network.efficiency


def up_links(system: System) -> float:
    """Bytes/s out of a leaf group and into it, all up-links together; endless without a network."""
    network = system.network
    if network is None:
        return float("inf")
    return node_interfaces(system) * network.nodes_per_leaf / network.oversubscription


def leaf_group(system: System, node: Index) -> Index:
    """The leaf group of each node, as they are numbered in a cluster."""
    return np.asarray(node // (system.network.nodes_per_leaf if system.network else 1))
