"""One network above nodes whose interfaces differ: the first group's switches, each port its own.

    leaf group of two fast nodes      leaf group of two slow nodes
    nic 50 GB/s ─┐                                 ┌─ nic 25 GB/s
    nic 50 GB/s ─┴ leaf:0 ──── spine:0 ──── leaf:1 ┴─ nic 25 GB/s
                         100 GB/s      50 GB/s          both with oversubscription 1

An interface's cable has the rate and efficiency of its own node, and the largest latency of all, as
messages cross the same switches. A leaf's up-links follow what its own nodes can send, a cable
between the routers of two nodes the slower of them. A leaf that is not full counts its empty ports
as those that it has.

Leaves out: routers of a dragonfly are the first group's, whatever their nodes send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from parsim.cluster.hardware import Cable, Network
from parsim.cluster.topology.fabrics import Nics, fabric_cables


def mixed_fabric(networks: Sequence[Network], nics: Nics) -> Iterator[Cable]:
    """All cables between nodes, each with a network and interfaces of its own.

    Raises:
        CatalogError: a torus that the nodes do not fill.
    """
    latency = max(one.latency for one in networks) / 2
    for cable in fabric_cables(networks[0], nics):
        if cable.link_class == "nic":
            own = networks[_place(cable.source)]
            yield replace(
                cable, bandwidth=own.nic_bandwidth, efficiency=own.efficiency, latency=latency
            )
        elif cable.link_class == "spine":
            yield _scaled(cable, _uplink_share(networks, nics, _place(cable.source)))
        elif cable.link_class == "cable" and networks[0].fabric != "dragonfly":
            ends = (networks[_place(end)] for end in (cable.source, cable.target))
            least = min(one.node_bandwidth for one in ends)
            yield _scaled(cable, least / networks[0].node_bandwidth)
        else:
            yield cable


def _place(name: str) -> int:
    """The first number of a part: the node of nic:3.1 and router:3, the leaf group of leaf:3.0."""
    return int(name.partition(":")[2].partition(".")[0])


def _scaled(cable: Cable, times: float) -> Cable:
    return replace(cable, bandwidth=cable.bandwidth * times)


def _uplink_share(networks: Sequence[Network], nics: Nics, group: int) -> float:
    """What a leaf group's nodes send on a leaf, over what they would if all were the first's."""
    wide = networks[0].nodes_per_leaf
    members = range(group * wide, min((group + 1) * wide, len(nics)))
    first, rails = networks[0], 1
    if first.fabric == "rail-optimised":
        rails = min(first.rails or len(nics[0]), len(nics[0]))
    each = [-(-len(nics[node]) // rails) * networks[node].nic_bandwidth for node in members]
    return fmean(each) / (-(-len(nics[0]) // rails) * first.nic_bandwidth)
