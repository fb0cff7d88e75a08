"""Clusters whose nodes differ: groups of equal nodes, and which group each rank's device is in.

Ranks fill nodes in order, and nodes stand in the order of their groups, or in that of a plan:

    groups: fast 2 x 8, slow 2 x 8        node    0     1     2     3
    no order, or (fast, slow)                     fast  fast  slow  slow
    (slow, fast)                                  slow  slow  fast  fast
    (fast, slow, fast, slow)                      fast  slow  fast  slow

A group that is named once stands there with all its nodes, else as often as it has nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from parsim.arrays import Index, sorted_values
from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.errors import CatalogError, PlanError, alternatives, shown

Order = tuple[str, ...] | None


def mixed_cluster(groups: Sequence[NodeGroup]) -> Cluster:
    """One cluster of several groups of nodes.

    Raises:
        CatalogError: no groups, a name twice, a group that no network joins to the others, or gloo
            beside NCCL.
    """
    if not groups:
        raise CatalogError("a mixed cluster needs at least one group of nodes")
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise CatalogError(f"groups {', '.join(names)}: each name must stand once")
    total = sum(group.num_nodes for group in groups)
    for group in groups:
        if group.num_nodes < 1:
            raise CatalogError(f"group {group.name}: nodes={group.num_nodes} must be at least 1")
        if total > 1 and group.system.network is None:
            raise CatalogError(
                f"group {group.name}: system {group.system.id} has no network, so its nodes cannot "
                f"be joined to {total - group.num_nodes} others; use a system with a network"
            )
    gloo = [group.name for group in groups if group.system.library == "gloo"]
    if gloo and len(gloo) < len(groups):
        raise CatalogError(
            f"group {gloo[0]} communicates by gloo and others by NCCL, which cannot meet in one "
            f"job; use systems of one library"
        )
    return Cluster(system=groups[0].system, num_nodes=total, groups=tuple(groups))


def order_problem(cluster: Cluster, order: Order) -> str | None:
    """What is wrong with an order of the groups' nodes, or None."""
    if order is None:
        return _border_problem(cluster, order)
    counts = {group.name: group.num_nodes for group in cluster.groups}
    order_text = f"node_order=[{', '.join(order)}]"
    if not counts:
        return (
            f"{order_text} orders groups of nodes, but all nodes are alike; leave "
            f"node_order out, or write cluster.groups"
        )
    for name in order:
        if name not in counts:
            return f"{order_text} names group '{shown(name)}'{alternatives(name, counts)}"
    given = Counter(order)
    for name, nodes in counts.items():
        if given[name] not in (1, nodes):
            return (
                f"{order_text} names group {name!r} {given[name]} times; allowed: once, for all "
                f"its nodes, or {nodes} times, for each of them"
            )
    return _border_problem(cluster, order)


def _border_problem(cluster: Cluster, order: Order) -> str | None:
    """Groups of ranks are placed as if a node of d devices began at a multiple of d."""
    start = 0
    for node in _nodes(cluster, order):
        group = cluster.groups[node]
        size = group.system.devices_per_node
        if start % size:
            return (
                f"node_order: a node of group {group.name!r} would begin at rank {start}, which is "
                f"no multiple of its {size} devices; put nodes of more devices first"
            )
        start += size
    return None


def _nodes(cluster: Cluster, order: Order) -> list[int]:
    """The group of each node, as a number."""
    names = [group.name for group in cluster.groups]
    numbers: list[int] = []
    for name in order or names:
        number = names.index(name)
        once = order is None or order.count(name) == 1
        numbers += [number] * (cluster.groups[number].num_nodes if once else 1)
    return numbers


def node_groups(cluster: Cluster, order: Order = None) -> tuple[int, ...]:
    """The number of the group of each node, in the order in which ranks fill nodes.

    Raises:
        PlanError: the order does not fit the groups.
    """
    message = order_problem(cluster, order)
    if message is not None:
        raise PlanError(message)
    return tuple(_nodes(cluster, order))


def rank_groups(cluster: Cluster, order: Order = None) -> Index:
    """The number of the group of each rank's device, (world,).

    The cluster's `placement` says which device a rank has.

    Raises:
        PlanError: the order does not fit the groups.
    """
    nodes = node_groups(cluster, order)
    sizes = [cluster.groups[node].system.devices_per_node for node in nodes]
    groups = np.repeat(np.array(nodes, dtype=np.int64), sizes)
    if cluster.placement is not None:
        groups = groups[list(cluster.placement)]
    return groups


def in_groups(cluster: Cluster) -> Cluster:
    """The cluster as groups of nodes: one, where all are alike."""
    if cluster.groups:
        return cluster
    system = cluster.system
    group = NodeGroup(name=system.id, system=system, num_nodes=cluster.num_nodes)
    return replace(cluster, groups=(group,))


@lru_cache(maxsize=64)
def node_systems(cluster: Cluster) -> tuple[System, ...]:
    """The kind of each node, in the order of the groups, which is that of the network."""
    groups = in_groups(cluster).groups
    return tuple(group.system for group in groups for _ in range(group.num_nodes))


def device_nodes(cluster: Cluster) -> Index:
    """The node of each device, both numbered in the order of the groups, (devices,)."""
    sizes = [system.devices_per_node for system in node_systems(cluster)]
    return np.repeat(np.arange(len(sizes)), sizes)


def rank_devices(cluster: Cluster, order: Order = None) -> Index:
    """The device of each rank, devices numbered in the order of the groups, (world,).

    Raises:
        PlanError: the order does not fit the groups.
    """
    devices = np.arange(cluster.num_devices)
    if cluster.groups:
        place_of = np.argsort(
            node_groups(cluster, order), kind="stable"
        )  # nodes of a group in turn
        devices = np.argsort(place_of[device_nodes(cluster)], kind="stable")
    return devices if cluster.placement is None else devices[list(cluster.placement)]


def rank_kinds(cluster: Cluster, order: Order = None) -> Index:
    """The kind of node of each rank: groups of equal nodes have the number of the first of them.

    Raises:
        PlanError: the order does not fit the groups.
    """
    first = np.array([cluster.systems.index(system) for system in cluster.systems])
    return first[rank_groups(cluster, order)]


def level_devices(cluster: Cluster, order: Order = None) -> Index:
    """The devices of ranks placed level: those of each kind in order, on devices of that kind.

    That is where closed forms take ranks to be; without a placement it is where they are.

    Raises:
        PlanError: the order does not fit the groups.
    """
    if cluster.placement is None:
        return rank_devices(cluster, order)
    devices, kinds = rank_devices(cluster, order), rank_kinds(cluster, order)
    plain = rank_devices(replace(cluster, placement=None), order)
    level = np.empty_like(devices)
    for kind in sorted_values(kinds):
        mine = kinds == kind
        of_kind = set(devices[mine].tolist())
        level[mine] = [device for device in plain.tolist() if device in of_kind]
    return level
