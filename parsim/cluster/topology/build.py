"""From a cluster to its graph: the cables of every node, those between them, the ranks' devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from parsim.cluster.hardware import Cable, Cluster
from parsim.cluster.topology.fabrics import fabric_cables
from parsim.cluster.topology.graph import Graph, make_graph
from parsim.cluster.topology.node_cables import node_cables
from parsim.errors import CatalogError


def build_graph(cluster: Cluster, seed: int = 0) -> Graph:
    """Graph of a cluster, its ranks placed, its failed parts taken out.

    Args:
        cluster: the nodes.
        seed: changes which of several equal routes a pair of devices gets.

    Raises:
        CatalogError: a fabric that cannot be built, a failed part that does not exist, or devices
            that are cut off from the others.
    """
    if cluster.groups:
        raise CatalogError(
            f"the links of {cluster.words} cannot be laid out: shared links are simulated for "
            f"nodes of one kind; leave --contention out, or use one group alone"
        )
    per_node = cluster.system.devices_per_node
    devices = [f"gpu:{rank}" for rank in range(cluster.num_devices)]
    graph = make_graph(_cables(cluster, per_node), devices, seed)
    if cluster.failed:
        graph = graph.without(*cluster.failed)
    if cluster.failed or cluster.system.topology:
        _check_joined(cluster, graph)
    return graph if cluster.placement is None else graph.placed(cluster.placement)


def _cables(cluster: Cluster, per_node: int) -> Iterator[Cable]:
    local = node_cables(cluster.system)
    own_nics = _nics(local)
    nodes = range(cluster.num_nodes)
    for node in nodes:
        for one in local:
            yield replace(
                one,
                source=_global(one.source, node, per_node),
                target=_global(one.target, node, per_node),
            )
    network = cluster.system.network
    if network is None:
        return
    if cluster.num_nodes > 1 and not own_nics:
        raise CatalogError(
            f"system {cluster.system.id}: its topology names no nic, so nodes="
            f"{cluster.num_nodes} cannot be joined; add cables to nic:0, ... or use nodes=1"
        )
    if own_nics:
        nics = [[_global(nic, node, per_node) for nic in own_nics] for node in nodes]
        yield from fabric_cables(network, nics)


def _nics(cables: Sequence[Cable]) -> list[str]:
    """Interfaces of a node by their number."""
    named = {end for one in cables for end in (one.source, one.target) if end.startswith("nic:")}
    return sorted(named, key=lambda name: int(name.partition(":")[2]))


def _global(name: str, node: int, per_node: int) -> str:
    """Name in the cluster: gpu:RANK, KIND:NODE.INDEX, and KIND:NODE where a node has one.

    A scenario may use fewer devices than a node has; those beyond stand idle.
    """
    kind, _, index = name.partition(":")
    if kind == "gpu" and int(index) < per_node:
        return f"gpu:{node * per_node + int(index)}"
    if kind == "gpu":
        kind = "idle"
    return f"{kind}:{node}.{index}" if index else f"{kind}:{node}"


def _check_joined(cluster: Cluster, graph: Graph) -> None:
    if cut := graph.cut_off():
        more = f" and {len(cut) - 3} more" if len(cut) > 3 else ""
        why = f"with {', '.join(cluster.failed)} failed, " if cluster.failed else ""
        raise CatalogError(
            f"system {cluster.system.id}: {why}{', '.join(cut[:3])}{more} "
            f"cannot reach {graph.nodes[graph.devices[0]]}; every device needs a way to the others"
        )
