"""The cables between nodes: leaves and spines, rings and tori of nodes, a dragonfly.

    rail-optimised   each rail (interface number, modulo `rails`) of a leaf group has its own leaf
    fat-tree         one leaf holds all interfaces of its leaf group
    both             the leaves' up-links go to the spines; none where there is one leaf group
    ring, torus      a router a node, joined to its neighbours
    dragonfly        routers of `nodes_per_leaf` nodes, all joined in a group; groups joined too

Rates: an interface's cable has its bandwidth. A leaf's up-links have together that of its
down-links over `oversubscription`, evenly over the spines. Interfaces' efficiency holds for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import prod
from statistics import fmean

from parsim.cluster.hardware import Cable, LinkClass, Network
from parsim.errors import CatalogError

Nics = Sequence[Sequence[str]]
"""Names of each node's interfaces."""
_AXES = 6
"""Axes of a torus at most: those of Tofu, the network of Fugaku."""


def fabric_cables(network: Network, nics: Nics) -> Iterator[Cable]:
    """All cables between nodes.

    Raises:
        CatalogError: a torus that the nodes do not fill.
    """
    return _FABRICS[network.fabric](network, nics)


def _rail_optimised(network: Network, nics: Nics) -> Iterator[Cable]:
    rails = min(network.rails or len(nics[0]), len(nics[0]))
    for node, node_nics in enumerate(nics):
        group = node // network.nodes_per_leaf
        for index, nic in enumerate(node_nics):
            yield _port(network, nic, f"leaf:{group}.{index % rails}")
    ports = -(-len(nics[0]) // rails)
    yield from _spines(network, len(nics), [f".{rail}" for rail in range(rails)], ports)


def _fat_tree(network: Network, nics: Nics) -> Iterator[Cable]:
    for node, node_nics in enumerate(nics):
        for nic in node_nics:
            yield _port(network, nic, f"leaf:{node // network.nodes_per_leaf}")
    yield from _spines(network, len(nics), [""], len(nics[0]))


def _spines(network: Network, nodes: int, leaves: Sequence[str], ports: int) -> Iterator[Cable]:
    """Up-links of every leaf, `ports` interfaces of each of its nodes, to every spine."""
    groups = -(-nodes // network.nodes_per_leaf)
    down = network.nodes_per_leaf * ports * network.nic_bandwidth
    up = down / network.oversubscription / network.spines
    for group in range(groups if groups > 1 else 0):
        for leaf in leaves:
            for spine in range(network.spines):
                yield _cable(network, f"leaf:{group}{leaf}", f"spine:{spine}", "spine", up)


def _torus(dimensions: int, network: Network, nics: Nics) -> Iterator[Cable]:
    """Neighbours in each dimension; a node's interfaces are shared evenly by its directions.

    Two nodes in a dimension have one cable of both directions' bandwidth.
    """
    yield from _routers(network, nics)
    shape = torus_shape(len(nics), dimensions)
    rate = network.node_bandwidth / 2 / dimensions / network.oversubscription
    for node in range(len(nics)):
        for axis, size in enumerate(shape):
            stride = prod(shape[axis + 1 :])
            coordinate = node // stride % size
            other = node + ((coordinate + 1) % size - coordinate) * stride
            if size > 2 or (size == 2 and coordinate == 0):
                lanes = 2 if size == 2 else 1
                yield _cable(network, f"router:{node}", f"router:{other}", "cable", rate * lanes)


def torus_shape(nodes: int, dimensions: int) -> tuple[int, ...]:
    """The most even factors of the number of nodes, largest first.

    Raises:
        CatalogError: more axes than any machine has; or more nodes than one, and no two factors
            above 1 for a torus of more than one.
    """
    if dimensions > _AXES:
        raise CatalogError(f"a torus of {dimensions} axes; choose 1 to {_AXES}")
    shape: list[int] = []
    left = nodes
    for axis in range(dimensions, 0, -1):
        root = round(left ** (1 / axis))
        size = next(factor for factor in range(max(root, 1), 0, -1) if left % factor == 0)
        shape.append(size)
        left //= size
    shape[-1] *= left
    if dimensions > 1 and nodes > dimensions and sorted(shape)[-2] == 1:
        raise CatalogError(
            f"nodes={nodes} does not fill a torus of {dimensions} dimensions; "
            f"choose a number with factors, e.g. {2**dimensions}, {4**dimensions}, or fabric: ring"
        )
    return tuple(sorted(shape, reverse=True))


def _routers(network: Network, nics: Nics, per_router: int = 1) -> Iterator[Cable]:
    for node, node_nics in enumerate(nics):
        for nic in node_nics:
            yield _port(network, nic, f"router:{node // per_router}")


def _dragonfly(network: Network, nics: Nics) -> Iterator[Cable]:
    """The balanced dragonfly: p nodes and h = p global ports a router, a = 2p routers a group.

    Every port has the bandwidth of a node. The a h global ports of a group are shared evenly by the
    other groups, each lane from another router. Source: Kim et al., ISCA 2008, a = 2p = 2h.
    """
    per_router = network.nodes_per_leaf
    yield from _routers(network, nics, per_router)
    routers = -(-len(nics) // per_router)
    size = 2 * per_router
    groups = -(-routers // size)
    members = [range(g * size, min(routers, (g + 1) * size)) for g in range(groups)]
    rate = network.node_bandwidth
    for group in members:
        for first, second in combinations(group, 2):
            yield _cable(network, f"router:{first}", f"router:{second}", "cable", rate)
    ports = size * per_router
    for first, second in combinations(range(groups), 2):
        lanes = max(1, min(len(members[first]), len(members[second]), ports // (groups - 1)))
        each = rate * ports / (groups - 1) / lanes / network.oversubscription
        for lane in range(lanes):
            ends = [
                members[side][((peer - (peer > side)) * lanes + lane) % len(members[side])]
                for side, peer in ((first, second), (second, first))
            ]
            yield _cable(network, f"router:{ends[0]}", f"router:{ends[1]}", "global", each)


def _port(network: Network, nic: str, switch: str) -> Cable:
    """An interface's cable; half of the network's latency, wherever the switch stands."""
    port = _cable(network, nic, switch, "nic", network.nic_bandwidth)
    return replace(port, latency=network.latency / 2)


def _cable(network: Network, source: str, target: str, link_class: LinkClass, rate: float) -> Cable:
    return Cable(source, target, link_class, rate, efficiency=network.efficiency)


_FABRICS: Mapping[str, Callable[[Network, Nics], Iterator[Cable]]] = {
    "rail-optimised": _rail_optimised,
    "fat-tree": _fat_tree,
    "ring": partial(_torus, 1),
    "torus-2d": partial(_torus, 2),
    "torus-3d": partial(_torus, 3),
    "dragonfly": _dragonfly,
}


def mixed_fabric(switches: Network, networks: Sequence[Network], nics: Nics) -> Iterator[Cable]:
    """All cables between nodes, each with one of `networks` and interfaces of its own.

        leaf group of two fast nodes      leaf group of two slow nodes
        nic 50 GB/s ─┐                                 ┌─ nic 25 GB/s
        nic 50 GB/s ─┴ leaf:0 ──── spine:0 ──── leaf:1 ┴─ nic 25 GB/s
                             100 GB/s      50 GB/s          both with oversubscription 1

    An interface's cable has the rate and efficiency of its own node, and the largest latency of
    all, as messages cross the same switches. A leaf's up-links follow what its own nodes can send,
    a cable between the routers of two nodes the slower of them. A leaf that is not full counts its
    empty ports as those that it has. The switches are those of `Cluster.system`, the first group's
    unless several jobs share them.

    Leaves out: routers of a dragonfly are the cluster's, whatever their nodes send.

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
