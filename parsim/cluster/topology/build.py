"""From a cluster to its graph: the cables of every node, those between them, the ranks' devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from parsim.cluster.groups import Order, node_systems, rank_devices
from parsim.cluster.hardware import Cable, Cluster, System
from parsim.cluster.topology.fabrics import fabric_cables, mixed_fabric
from parsim.cluster.topology.graph import Graph, make_graph
from parsim.cluster.topology.node_cables import node_cables
from parsim.errors import CatalogError

MOST_DRAWN = 16_384
"""Devices whose links are laid out, at some 50 kB and 60 us each: the largest runs published."""


def build_graph(cluster: Cluster, seed: int = 0, order: Order = None) -> Graph:
    """Graph of a cluster, its ranks placed, its failed parts taken out.

    Nodes of a mixed cluster hang on the network in the order of their groups; a plan's ranks fill
    them in `order`. `seed` changes which of several equal routes a pair of devices gets.

    Raises:
        CatalogError: too many devices, a fabric that cannot be built, a failed part that does not
            exist, or devices that are cut off from the others.
        PlanError: an order that does not fit the groups.
    """
    if cluster.num_devices > MOST_DRAWN:
        raise CatalogError(
            f"nodes={cluster.num_nodes} have {cluster.num_devices} devices; links are laid out one "
            f"by one for at most {MOST_DRAWN} (a step without contention is predicted for more)"
        )
    devices = [f"gpu:{rank}" for rank in range(cluster.num_devices)]
    graph = make_graph(_cables(cluster), devices, seed)
    if cluster.failed:
        graph = graph.without(*cluster.failed)
    if cluster.failed or any(system.topology for system in cluster.systems):
        _check_joined(cluster, graph)
    if cluster.placement is None and order is None:
        return graph
    return graph.placed(rank_devices(cluster, order).tolist())


def _cables(cluster: Cluster) -> Iterator[Cable]:
    systems = node_systems(cluster)
    kinds = {id(system): _used_cables(system) for system in systems}
    nics: list[list[str]] = []
    first = 0
    for node, system in enumerate(systems):
        local, count = kinds[id(system)], system.devices_per_node
        for cable in local:
            yield replace(
                cable,
                source=_global(cable.source, node, first, count),
                target=_global(cable.target, node, first, count),
            )
        nics.append([_global(nic, node, first, count) for nic in _nics(local)])
        first += count
    yield from _between(cluster, systems, nics)


def _used_cables(system: System) -> tuple[Cable, ...]:
    """Cables of a node, less those to the interfaces that its devices leave unused."""
    cables = node_cables(system)
    if system.network is None:
        return cables
    unused = set(_nics(cables)[system.network.nics_per_node :])
    return tuple(cable for cable in cables if not {cable.source, cable.target} & unused)


def _between(
    cluster: Cluster, systems: Sequence[System], nics: Sequence[Sequence[str]]
) -> Iterator[Cable]:
    """The cables of the network that joins the nodes' interfaces."""
    networks = [system.network for system in systems if system.network is not None]
    switches = cluster.system.network
    bare = next(
        (system for system, node_nics in zip(systems, nics, strict=True) if not node_nics), None
    )
    if switches is None:
        return
    if cluster.num_nodes > 1 and bare is not None:
        raise CatalogError(
            f"system {bare.id}: its topology names no nic, so nodes="
            f"{cluster.num_nodes} cannot be joined; add cables to nic:0, ... or use nodes=1"
        )
    if bare is None:
        alike = all(system == switches for system in networks)
        cables = fabric_cables(switches, nics)
        yield from cables if alike else mixed_fabric(switches, networks, nics)


def _nics(cables: Sequence[Cable]) -> list[str]:
    """Interfaces of a node by their number."""
    named = {
        end for cable in cables for end in (cable.source, cable.target) if end.startswith("nic:")
    }
    return sorted(named, key=lambda name: int(name.partition(":")[2]))


def _global(name: str, node: int, first: int, count: int) -> str:
    """Name in the cluster: gpu:RANK, KIND:NODE.INDEX, and KIND:NODE where a node has one.

    `first` is the first of the node's `count` devices. A scenario may use fewer devices than a node
    has; those beyond stand idle.
    """
    kind, _, index = name.partition(":")
    if kind == "gpu" and int(index) < count:
        return f"gpu:{first + int(index)}"
    if kind == "gpu":
        kind = "idle"
    return f"{kind}:{node}.{index}" if index else f"{kind}:{node}"


def _check_joined(cluster: Cluster, graph: Graph) -> None:
    if cut := graph.cut_off():
        more = f" and {len(cut) - 3} more" if len(cut) > 3 else ""
        why = f"with {', '.join(cluster.failed)} failed, " if cluster.failed else ""
        name = cluster.words if cluster.groups else f"system {cluster.system.id}"
        raise CatalogError(
            f"{name}: {why}{', '.join(cut[:3])}{more} "
            f"cannot reach {graph.nodes[graph.devices[0]]}; every device needs a way to the others"
        )
