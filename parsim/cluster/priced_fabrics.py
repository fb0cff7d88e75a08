"""Whether a cluster's network is wired in a way that closed forms have no rates of."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster, NetworkFabric
from parsim.cluster.reader import Catalog

LEAVES_AND_SPINES: tuple[NetworkFabric, ...] = ("fat-tree", "rail-optimised")
"""Fabrics that closed forms price: interfaces of a node, and up-links of leaf groups."""


def hashed_spines(cluster: Cluster) -> bool:
    """Whether flows between leaf groups take one of several spines each, by a hash.

    Closed forms have them spread over all spines evenly, as adaptive routing does.
    """
    network = cluster.system.network
    if network is None or network.fabric not in LEAVES_AND_SPINES:
        return False
    return network.spines > 1 and cluster.num_nodes > network.nodes_per_leaf


def other_fabric(cluster: Cluster, catalog: Catalog) -> bool:
    """Whether several nodes hang on a fabric that closed forms do not price.

    They know leaves below spines, as the catalog has them for the (first) system; rings, tori and
    dragonflies, or rails in the place of a tree, only show on links.
    """
    network = cluster.system.network
    if network is None or cluster.num_nodes == 1:
        return False
    usual = catalog.system(cluster.system.id).network
    other = usual is not None and usual.fabric != network.fabric
    return other or network.fabric not in LEAVES_AND_SPINES
