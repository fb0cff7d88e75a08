"""Networks between nodes: shapes, ECMP, bisections by hand, and routes against a plain search."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.hardware import Cable, Cluster, LinkClass, NetworkFabric
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import Graph, bisection, build_graph
from parsim.cluster.topology.fabrics import torus_shape
from parsim.cluster.topology.graph import make_graph
from parsim.cluster.topology.link import WEIGHTS
from parsim.errors import CatalogError


def graph_of(name: str, num_nodes: int = 1, seed: int = 0, **network: Any) -> Graph:
    system = load_catalog().system(name)
    if network:
        assert system.network is not None
        system = replace(system, network=replace(system.network, **network))
    return build_graph(Cluster(system=system, num_nodes=num_nodes), seed)


def spines(graph: Graph) -> Counter[str]:
    """Spines on the way of each device of the first node to the same one of the ninth."""
    ways = [graph.route(rank, 64 + rank) for rank in range(8)]
    names = [graph.nodes[graph.target[link]] for way in ways for link in way]
    return Counter(name for name in names if name.startswith("spine"))


def test_ecmp_spreads_over_spines_and_the_seed_decides() -> None:
    chosen = [
        spines(graph_of("dgx-h100", 16, seed, nodes_per_leaf=4, spines=4)) for seed in (0, 0, 1)
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(chosen[0]) > 1
    assert chosen[0].total() == 8
    assert spines(graph_of("dgx-h100", 16, nodes_per_leaf=4)) == {"spine:0": 8}


def test_spines_share_the_uplinks() -> None:
    graph = graph_of("dgx-h100", 16, nodes_per_leaf=4, spines=4, oversubscription=2.0)
    up = {c for c, k in zip(graph.capacity.tolist(), graph.link_class, strict=True) if k == "spine"}
    # 4 nodes x 50 GB/s down, half of it up, over four spines
    assert up == {25e9}


@pytest.mark.parametrize(
    ("nodes", "dimensions", "shape"),
    [(8, 3, (2, 2, 2)), (64, 3, (4, 4, 4)), (12, 2, (4, 3)), (6, 3, (3, 2, 1)), (5, 1, (5,))],
)
def test_torus_shapes(nodes: int, dimensions: int, shape: tuple[int, ...]) -> None:
    assert torus_shape(nodes, dimensions) == shape


def test_a_prime_is_no_torus() -> None:
    with pytest.raises(CatalogError, match="nodes=7 does not fill a torus of 2 dimensions"):
        torus_shape(7, 2)


def test_a_torus_has_no_more_axes_than_machines_have() -> None:
    with pytest.raises(CatalogError, match="a torus of 1000000 axes; choose 1 to 6"):
        torus_shape(64, 1_000_000)


# Node bandwidth of a DGX H100: 8 x 50 = 400 GB/s.
@pytest.mark.parametrize(
    ("fabric", "nodes", "expected"),
    [
        ("rail-optimised", 4, 2 * 400.0),  # two nodes' interfaces
        ("fat-tree", 4, 2 * 400.0),
        ("ring", 8, 2 * 200.0),  # cut in two places
        ("torus-2d", 16, 2 * 4 * 100.0),  # two cuts of four rows
        ("torus-3d", 64, 2 * 16 * 400.0 / 6),
        ("dragonfly", 64, 32 * 400.0),  # all nodes' bandwidth: balanced
    ],
)
def test_bisection_between_nodes(fabric: NetworkFabric, nodes: int, expected: float) -> None:
    graph = graph_of("dgx-h100", nodes, fabric=fabric, nodes_per_leaf=4)
    assert bisection(graph) == pytest.approx(expected * 1e9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dgx-a100", 4 * 300.0),
        ("dgx-1v", 6 * 25.0),  # 2 + 2 + 1 + 1 links between the quads
        ("a100-pcie-node", 16.0),  # between the sockets
        ("gb200-nvl72", 36 * 900.0),
        ("cpu", 5.85),
    ],
)
def test_bisection_in_a_node(name: str, expected: float) -> None:
    assert bisection(graph_of(name)) == pytest.approx(expected * 1e9)


def test_oversubscription_divides_the_bisection() -> None:
    whole = bisection(graph_of("dgx-h100", 16, nodes_per_leaf=4))
    assert bisection(graph_of("dgx-h100", 16, nodes_per_leaf=4, oversubscription=4.0)) == (
        pytest.approx(whole / 4)
    )


# ------------------------------------------------------------------- against other algorithms


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Connected graphs of 2 to 7 parts, the first devices."""
    size = draw(st.integers(2, 7))
    devices = draw(st.integers(2, size))
    names = [f"gpu:{i}" if i < devices else f"switch:{i}" for i in range(size)]
    tree = {(draw(st.integers(0, i - 1)), i) for i in range(1, size)}
    more = draw(st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=8))
    pairs = sorted(tree | {(a, b) for a, b in more if a < b})
    classes: list[LinkClass] = draw(
        st.lists(st.sampled_from(("nvlink", "pcie", "nic")), min_size=20, max_size=20)
    )
    widths = draw(st.lists(st.integers(1, 4), min_size=20, max_size=20))
    cables = [
        Cable(names[a], names[b], kind, float(width))
        for (a, b), kind, width in zip(pairs, classes, widths, strict=False)
    ]
    return make_graph(cables, names[:devices])


def dijkstra(graph: Graph, start: int) -> dict[int, int]:
    distance, queue = {}, [(0, start)]
    while queue:
        reach, part = heappop(queue)
        if part in distance:
            continue
        distance[part] = reach
        for link in np.flatnonzero(graph.source == part).tolist():
            heappush(queue, (reach + WEIGHTS[graph.link_class[link]], int(graph.target[link])))
    return distance


@given(graphs(), st.data())
@settings(max_examples=200)
def test_routes_are_shortest(graph: Graph, data: st.DataObject) -> None:
    ranks = st.integers(0, len(graph.devices) - 1)
    a, b = data.draw(ranks), data.draw(ranks)
    route = graph.route(a, b)
    cost = sum(WEIGHTS[graph.link_class[link]] for link in route)
    assert cost == dijkstra(graph, int(graph.devices[a]))[int(graph.devices[b])]
    assert len({int(graph.source[link]) for link in route}) == len(route)


@given(graphs())
@settings(max_examples=100)
def test_bisection_is_the_least_cut(graph: Graph) -> None:
    """Against all cuts, one by one."""
    half = len(graph.devices) // 2
    first = {int(device) for device in graph.devices[:half]}
    second = {int(device) for device in graph.devices[half:]}
    parts = len(graph.nodes)
    free = [part for part in range(parts) if part not in first | second]
    used = dict.fromkeys(range(graph.num_links), True)
    from parsim.cluster.topology.bisection import _used

    used.update(enumerate(_used(graph).tolist()))
    cuts = []
    for choice in range(2 ** len(free)):
        side = first | {part for bit, part in enumerate(free) if choice >> bit & 1}
        cuts.append(
            sum(
                graph.capacity[link]
                for link in range(graph.num_links)
                if used[link] and graph.source[link] in side and graph.target[link] not in side
            )
        )
    assert bisection(graph) == pytest.approx(min(cuts))
