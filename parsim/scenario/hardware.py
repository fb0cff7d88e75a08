"""The cluster block: a system of the catalog, its overrides and the number of nodes, or groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parsim.cluster.hardware import Cluster, Network, NodeGroup, System
from parsim.cluster.mixed import mixed_cluster
from parsim.cluster.reader import Catalog, load_catalog
from parsim.scenario.positions import Tree
from parsim.scenario.schema import ClusterBlock, GroupBlock, MixedBlock

AnyCluster = ClusterBlock | MixedBlock
NodeBlock = ClusterBlock | GroupBlock
"""What describes one kind of node."""


def catalog_files(tree: Tree, block: AnyCluster) -> tuple[Path, ...]:
    """The user's own catalog files, absolute; they are written relative to the scenario."""
    return tuple((tree.file.parent / name).resolve() for name in block.catalog)


def build_cluster(tree: Tree, block: AnyCluster, notes: list[str]) -> Cluster:
    """Build the cluster; `notes` takes what had to be assumed.

    Raises:
        ScenarioError: an unknown system or device, overrides that do not fit the system, or groups
            of nodes that cannot be one cluster.
    """
    with tree.located("cluster", "catalog"):
        catalog = load_catalog(catalog_files(tree, block))
    if isinstance(block, MixedBlock):
        return _mixed(tree, block, catalog, notes)
    where = ("cluster",)
    system = _overridden(tree, where, block, _system(tree, where, block, catalog), notes)
    with tree.located("cluster", "nodes"):
        cluster = Cluster(system=system, num_nodes=block.nodes)
    if "placement" in block.given() or block.failed:
        notes.append(
            "cluster.placement and cluster.failed change routes and which links are shared: "
            "closed forms take rank order and whole nodes, so that links are simulated too (tier C)"
        )
    return _failed(tree, block, _placed(tree, block, cluster))


def _mixed(tree: Tree, block: MixedBlock, catalog: Catalog, notes: list[str]) -> Cluster:
    """The groups of nodes as one cluster."""
    found = []
    for name, group in block.groups.items():
        where = ("cluster", "groups", name)
        said: list[str] = []
        system = _overridden(tree, where, group, _system(tree, where, group, catalog), said)
        notes += [f"group {name}: {one}" for one in said]
        found.append(NodeGroup(name=name, system=system, num_nodes=group.nodes))
    with tree.located("cluster", "groups"):
        cluster = mixed_cluster(found)
    if "placement" in block.given():
        notes.append(
            "cluster.placement says which kind of node a rank is on; how groups of ranks spread "
            "over nodes is taken from rank order, except on shared links (tier C)"
        )
    return _failed(tree, block, _placed(tree, block, cluster))


def _placed(tree: Tree, block: AnyCluster, cluster: Cluster) -> Cluster:
    if "placement" not in block.given():
        return cluster
    with tree.located("cluster", "placement"):
        return replace(cluster, placement=block.placement)


def _failed(tree: Tree, block: AnyCluster, cluster: Cluster) -> Cluster:
    """The cluster without its failed parts; its graph is made to see that they exist.

    Nodes of a mixed cluster are numbered in the order of the groups.
    """
    if not block.failed:
        return cluster
    from parsim.cluster.topology import build_graph

    with tree.located("cluster", "failed"):
        found = replace(cluster, failed=block.failed)
        build_graph(found)
    return found


def _system(tree: Tree, where: tuple[str, ...], block: NodeBlock, catalog: Catalog) -> System:
    with tree.located(*where, "system"):
        system = catalog.system(block.system)
    if "device" not in block.given():
        return system
    with tree.located(*where, "device"):
        return replace(system, device=catalog.device(block.device))


def _overridden(
    tree: Tree, where: tuple[str, ...], block: NodeBlock, system: System, notes: list[str]
) -> System:
    used = block.given().get("devices_per_node", system.devices_per_node)
    if used > system.devices_per_node:
        raise tree.error(
            (*where, "devices_per_node"),
            f"is {used}, more than the {system.devices_per_node} of a "
            f"{system.id} node; allowed: 1 to {system.devices_per_node}",
        )
    return replace(
        system,
        devices_per_node=used,
        intra=replace(system.intra, **block.intra.given()),
        network=_network(tree, where, block, system, used, notes),
    )


def _network(
    tree: Tree,
    where: tuple[str, ...],
    block: NodeBlock,
    system: System,
    used: int,
    notes: list[str],
) -> Network | None:
    """The network with overrides; unused devices leave their share of the interfaces unused."""
    given, network = block.network.given(), system.network
    if network is None:
        if given:
            raise tree.error((*where, "network"), f"system {system.id} has no network to change")
        return None
    share = -(-network.nics_per_node * used // system.devices_per_node)
    if share != network.nics_per_node and "nics_per_node" not in given:
        notes.append(
            f"devices_per_node={used} of {system.devices_per_node}: {share} of "
            f"{network.nics_per_node} network interfaces of a node are used"
        )
    return replace(network, **{"nics_per_node": share, **given})
