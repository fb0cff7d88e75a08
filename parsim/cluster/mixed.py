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

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.errors import CatalogError, PlanError, did_you_mean

Index = NDArray[np.int64]
Order = tuple[str, ...] | None


def mixed_cluster(
    groups: Sequence[NodeGroup],
    placement: tuple[int, ...] | None = None,
    failed: tuple[str, ...] = (),
) -> Cluster:
    """One cluster of several groups of nodes.

    Raises:
        CatalogError: no groups, a name twice, a group that no network joins to the others, gloo
            beside NCCL, or a placement that does not fit.
    """
    if not groups:
        raise CatalogError("a mixed cluster needs at least one group of nodes")
    names = [one.name for one in groups]
    if len(set(names)) < len(names):
        raise CatalogError(f"groups {', '.join(names)}: each name must stand once")
    total = sum(one.num_nodes for one in groups)
    for one in groups:
        if one.num_nodes < 1:
            raise CatalogError(f"group {one.name}: nodes={one.num_nodes} must be at least 1")
        if total > 1 and one.system.network is None:
            raise CatalogError(
                f"group {one.name}: system {one.system.id} has no network, so its nodes cannot be "
                f"joined to {total - one.num_nodes} others; use a system with a network"
            )
    gloo = [one.name for one in groups if one.system.library == "gloo"]
    if gloo and len(gloo) < len(groups):
        raise CatalogError(
            f"group {gloo[0]} communicates by gloo and others by NCCL, which cannot meet in one "
            f"job; use systems of one library"
        )
    return Cluster(
        system=groups[0].system,
        num_nodes=total,
        placement=placement,
        failed=failed,
        groups=tuple(groups),
    )


def order_problem(cluster: Cluster, order: Order) -> str | None:
    """What is wrong with an order of the groups' nodes, or None."""
    if order is None:
        return _border_problem(cluster, order)
    counts = {one.name: one.num_nodes for one in cluster.groups}
    said = f"node_order=[{', '.join(order)}]"
    if not counts:
        return (
            f"{said} orders groups of nodes, but all nodes are alike; leave "
            f"node_order out, or write cluster.groups"
        )
    for name in order:
        if name not in counts:
            hint = did_you_mean(name, counts)
            return f"{said} names group {name!r}{hint}; allowed: {', '.join(counts)}"
    given = Counter(order)
    for name, nodes in counts.items():
        if given[name] not in (1, nodes):
            return (
                f"{said} names group {name!r} {given[name]} times; allowed: once, for all its "
                f"nodes, or {nodes} times, for each of them"
            )
    return _border_problem(cluster, order)


def _border_problem(cluster: Cluster, order: Order) -> str | None:
    """Groups of ranks are placed as if a node of d devices began at a multiple of d."""
    start = 0
    for node in _nodes(cluster, order):
        one = cluster.groups[node]
        size = one.system.devices_per_node
        if start % size:
            return (
                f"node_order: a node of group {one.name!r} would begin at rank {start}, which is "
                f"no multiple of its {size} devices; put nodes of more devices first"
            )
        start += size
    return None


def _nodes(cluster: Cluster, order: Order) -> list[int]:
    """The group of each node, as a number."""
    names = [one.name for one in cluster.groups]
    found: list[int] = []
    for name in order or names:
        number = names.index(name)
        once = order is None or order.count(name) == 1
        found += [number] * (cluster.groups[number].num_nodes if once else 1)
    return found


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
    found = np.repeat(np.array(nodes, dtype=np.int64), sizes)
    if cluster.placement is not None:
        found = found[list(cluster.placement)]
    return found


def in_groups(cluster: Cluster) -> Cluster:
    """The cluster as groups of nodes: one, where all are alike."""
    if cluster.groups:
        return cluster
    system = cluster.system
    one = NodeGroup(name=system.id, system=system, num_nodes=cluster.num_nodes)
    return mixed_cluster([one], cluster.placement, cluster.failed)


def node_systems(cluster: Cluster) -> tuple[System, ...]:
    """The kind of each node, in the order of the groups, which is that of the network."""
    groups = cluster.groups or in_groups(cluster).groups
    return tuple(one.system for one in groups for _ in range(one.num_nodes))


def device_nodes(cluster: Cluster) -> Index:
    """The node of each device, both numbered in the order of the groups, (devices,)."""
    sizes = [one.devices_per_node for one in node_systems(cluster)]
    return np.repeat(np.arange(len(sizes)), sizes)


def rank_devices(cluster: Cluster, order: Order = None) -> Index:
    """The device of each rank, devices numbered in the order of the groups, (world,).

    Raises:
        PlanError: the order does not fit the groups.
    """
    if not cluster.groups:
        devices = np.arange(cluster.num_devices)
    else:
        nodes, node_of = _numbered(cluster, order), device_nodes(cluster)
        devices = np.concatenate([np.flatnonzero(node_of == node) for node in nodes])
    return devices if cluster.placement is None else devices[list(cluster.placement)]


def rank_kinds(cluster: Cluster, order: Order = None) -> Index:
    """As `rank_groups`, but groups of equal nodes have the number of the first of them.

    Raises:
        PlanError: the order does not fit the groups.
    """
    first = np.array([cluster.systems.index(one) for one in cluster.systems])
    return first[rank_groups(cluster, order)]


def level_devices(cluster: Cluster, order: Order = None) -> Index:
    """The devices of ranks placed level: those of each kind in order, on devices of that kind.

    That is where closed forms take ranks to be; without a placement it is where they are.

    Raises:
        PlanError: the order does not fit the groups.
    """
    if cluster.placement is None:
        return rank_devices(cluster, order)
    own, kinds = rank_devices(cluster, order), rank_kinds(cluster, order)
    plain = rank_devices(replace(cluster, placement=None), order)
    found = np.empty_like(own)
    for kind in np.unique(kinds):
        mine = kinds == kind
        held = set(own[mine].tolist())
        found[mine] = [device for device in plain.tolist() if device in held]
    return found


def _numbered(cluster: Cluster, order: Order) -> list[int]:
    """The node on each place of the order, numbered in the order of the groups."""
    sizes = [one.num_nodes for one in cluster.groups]
    free = [sum(sizes[:group]) for group in range(len(sizes))]
    found = []
    for group in node_groups(cluster, order):
        found.append(free[group])
        free[group] += 1
    return found
