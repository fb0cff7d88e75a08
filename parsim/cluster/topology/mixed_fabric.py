"""One network above nodes whose interfaces differ: the cluster's switches, each port its own.

    leaf group of two fast nodes      leaf group of two slow nodes
    nic 50 GB/s ─┐                                 ┌─ nic 25 GB/s
    nic 50 GB/s ─┴ leaf:0 ──── spine:0 ──── leaf:1 ┴─ nic 25 GB/s
                         100 GB/s      50 GB/s          both with oversubscription 1

An interface's cable has the rate and efficiency of its own node, and the largest latency of all, as
messages cross the same switches. A leaf's up-links follow what its own nodes can send, a cable
between the routers of two nodes the slower of them. A leaf that is not full counts its empty ports
as those that it has. The switches are those of `Cluster.system`, the first group's unless several
jobs share them.

Leaves out: routers of a dragonfly are the cluster's, whatever their nodes send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from parsim.cluster.hardware import Cable, Network
from parsim.cluster.topology.fabrics import Nics, fabric_cables


def mixed_fabric(switches: Network, networks: Sequence[Network], nics: Nics) -> Iterator[Cable]:
    """All cables between nodes, each with one of `networks` and interfaces of its own.

    `switches` is what is above the interfaces.

    Raises:
        CatalogError: a torus that the nodes do not fill.
    """
    latency = max(network.latency for network in networks) / 2
    for cable in fabric_cables(switches, nics):
        if cable.link_class == "nic":
            network = networks[_place(cable.source)]
            yield replace(
                cable,
                bandwidth=network.nic_bandwidth,
                efficiency=network.efficiency,
                latency=latency,
            )
        elif cable.link_class == "spine":
            share = _uplink_share(switches, networks, nics, _place(cable.source))
            yield replace(cable, bandwidth=cable.bandwidth * share)
        elif cable.link_class == "cable" and switches.fabric != "dragonfly":
            ends = (networks[_place(end)] for end in (cable.source, cable.target))
            least = min(network.node_bandwidth for network in ends)
            yield replace(cable, bandwidth=cable.bandwidth * (least / switches.node_bandwidth))
        else:
            yield cable


def _place(name: str) -> int:
    """The first number of a part: the node of nic:3.1 and router:3, the leaf group of leaf:3.0."""
    return int(name.partition(":")[2].partition(".")[0])


def _uplink_share(switches: Network, networks: Sequence[Network], nics: Nics, group: int) -> float:
    """What a leaf group's nodes send on a leaf, over what the switches take them to send."""
    wide = switches.nodes_per_leaf
    members = range(group * wide, min((group + 1) * wide, len(nics)))
    rails = 1
    if switches.fabric == "rail-optimised":
        rails = min(switches.rails or len(nics[0]), len(nics[0]))
    each = [-(-len(nics[node]) // rails) * networks[node].nic_bandwidth for node in members]
    return fmean(each) / (-(-len(nics[0]) // rails) * switches.nic_bandwidth)
