"""The cluster block: a system of the catalog, its overrides and the number of nodes, or groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parsim.cluster.groups import mixed_cluster
from parsim.cluster.hardware import Cluster, IntraNode, Network, NodeGroup, System
from parsim.cluster.priced_fabrics import hashed_spines, other_fabric
from parsim.cluster.reader import Catalog, load_catalog
from parsim.cluster.topology.mesh import node_mesh
from parsim.errors import shown
from parsim.scenario.positions import Tree
from parsim.scenario.schema.cluster import ClusterBlock, GroupBlock, MixedBlock

AnyCluster = ClusterBlock | MixedBlock
NodeBlock = ClusterBlock | GroupBlock


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
    cluster = _any_cluster(tree, block, catalog, notes)
    network = cluster.system.network
    if network is not None and other_fabric(cluster, catalog):
        notes.append(
            f"cluster.network.fabric={network.fabric} changes routes and which links are shared: "
            f"closed forms take leaves below spines as {cluster.system.id} has them, so that links "
            f"are simulated too (tier C)"
        )
    elif network is not None and hashed_spines(cluster):
        notes.append(
            f"cluster.network.spines={network.spines}: a hash sends each flow over one of them, "
            f"where closed forms spread it over all, so that links are simulated too (tier C)"
        )
    return cluster


def _any_cluster(tree: Tree, block: AnyCluster, catalog: Catalog, notes: list[str]) -> Cluster:
    if isinstance(block, MixedBlock):
        return _mixed(tree, block, catalog, notes)
    system = _system(tree, ("cluster",), block, catalog, notes)
    with tree.located("cluster", "nodes"):
        cluster = Cluster(system=system, num_nodes=block.nodes)
    if "placement" in block.given() or block.failed:
        notes.append(
            "cluster.placement and cluster.failed change routes and which links are shared: "
            "closed forms take rank order and whole nodes, so that links are simulated too (tier C)"
        )
    return _placed(tree, block, cluster)


def _mixed(tree: Tree, block: MixedBlock, catalog: Catalog, notes: list[str]) -> Cluster:
    """The groups of nodes as one cluster."""
    groups = []
    for name, group in block.groups.items():
        where = ("cluster", "groups", name)
        remarks: list[str] = []
        system = _system(tree, where, group, catalog, remarks)
        notes += [f"group {name}: {remark}" for remark in remarks]
        groups.append(NodeGroup(name=name, system=system, num_nodes=group.nodes))
    with tree.located("cluster", "groups"):
        cluster = mixed_cluster(groups)
    if "placement" in block.given():
        notes.append(
            "cluster.placement says which kind of node a rank is on; how groups of ranks spread "
            "over nodes is taken from rank order, except on shared links (tier C)"
        )
    return _placed(tree, block, cluster)


def _placed(tree: Tree, block: AnyCluster, cluster: Cluster) -> Cluster:
    """The cluster with its ranks on their devices and without its failed parts.

    Nodes of a mixed cluster are numbered in the order of the groups.
    """
    if "placement" in block.given():
        with tree.located("cluster", "placement"):
            cluster = replace(cluster, placement=block.placement)
    if block.failed:
        twice = [part for index, part in enumerate(block.failed) if part in block.failed[:index]]
        if twice:
            raise tree.error(
                ("cluster", "failed"), f"names {shown(twice[0])} twice; once is enough"
            )
        from parsim.cluster.topology import build_graph

        with tree.located("cluster", "failed"):
            cluster = replace(cluster, failed=block.failed)
            build_graph(cluster)  # refuses parts that do not exist
    return cluster


def _mesh_note(system: System, intra: IntraNode) -> str:
    return (
        f"NVLink joins only some devices of {system.id}: groups that it joins in a ring, and "
        f"messages over it, have its rate, all others the {intra.rate / 1e9:.3g} GB/s of PCI "
        f"Express"
    )


def _system(
    tree: Tree, where: tuple[str, ...], block: NodeBlock, catalog: Catalog, notes: list[str]
) -> System:
    """The catalog's system with the block's overrides."""
    with tree.located(*where, "system"):
        system = catalog.system(block.system)
    if "device" in block.given():
        with tree.located(*where, "device"):
            system = replace(system, device=catalog.device(block.device))
    used = _used_devices(tree, where, block, system, notes)
    if system.network is None and block.network.given():
        raise tree.error((*where, "network"), f"system {system.id} has no network to change")
    intra = replace(system.intra, **block.intra.given())
    if intra.fabric == "pcie" and node_mesh(system):
        notes.append(_mesh_note(system, intra))
    mesh = node_mesh(replace(system, intra=intra)) if used < system.devices_per_node else ()
    return replace(
        system,
        devices_per_node=used,
        intra=intra,
        network=system.network and _network(block, system.network, system, used, notes),
        topology=mesh or system.topology,  # devices that are left keep their own cables
    )


def _used_devices(
    tree: Tree, where: tuple[str, ...], block: NodeBlock, system: System, notes: list[str]
) -> int:
    """How many devices of a node are used: only a CPU has ranks beyond the system's own."""
    used = int(block.given().get("devices_per_node", system.devices_per_node))
    if used > system.devices_per_node and not system.on_cpu:
        raise tree.error(
            (*where, "devices_per_node"),
            f"is {used}, more than the {system.devices_per_node} of a "
            f"{system.id} node; allowed: 1 to {system.devices_per_node}",
        )
    if used > system.devices_per_node:
        notes.append(
            f"devices_per_node={used} is more than the {system.devices_per_node} of {system.id}: "
            f"each rank is predicted with a core of its own"
        )
    return used


def _network(
    block: NodeBlock, network: Network, system: System, used: int, notes: list[str]
) -> Network:
    """The network with overrides; unused devices leave their share of the interfaces unused."""
    given = block.network.given()
    share = -(-network.nics_per_node * used // system.devices_per_node)
    if share != network.nics_per_node and "nics_per_node" not in given:
        notes.append(
            f"devices_per_node={used} of {system.devices_per_node}: {share} of "
            f"{network.nics_per_node} network interfaces of a node are used"
        )
    return replace(network, **{"nics_per_node": share, **given})
