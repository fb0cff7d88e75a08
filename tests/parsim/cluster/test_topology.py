"""The graph of links: paths of every fabric, capacities, and which links a ring crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import DGX1_LINKS, Link, Topology, build_topology
from parsim.errors import CatalogError

SYSTEMS = list(load_catalog().systems)


def topology(name: str, num_nodes: int = 1, **network: Any) -> Topology:
    system = load_catalog().system(name)
    if network:
        assert system.network is not None
        system = replace(system, network=replace(system.network, **network))
    return build_topology(Cluster(system=system, num_nodes=num_nodes))


def stops(path: Sequence[Link]) -> list[str]:
    return [path[0].source, *(link.target for link in path)]


def test_nvswitch() -> None:
    path = topology("dgx-a100").path(3, 5)
    assert stops(path) == ["gpu:3", "nvswitch:0", "gpu:5"]
    assert {link.link_class for link in path} == {"nvlink"}
    assert {link.bandwidth for link in path} == {300e9}
    assert sum(link.latency for link in path) == pytest.approx(3.4e-6)


def test_across_nodes_under_one_leaf() -> None:
    path = topology("dgx-a100", 2).path(3, 8 + 5)
    assert stops(path) == ["gpu:3", "nic:0.3", "leaf:0", "nic:1.5", "gpu:13"]
    assert [link.link_class for link in path] == ["nic", "leaf", "leaf", "nic"]
    assert {link.bandwidth for link in path} == {25e9}
    assert sum(link.latency for link in path) == pytest.approx(2e-6)


def test_across_leaf_groups() -> None:
    path = topology("dgx-a100", 21).path(0, 160)
    assert stops(path) == ["gpu:0", "nic:0.0", "leaf:0", "spine", "leaf:1", "nic:20.0", "gpu:160"]
    # 20 nodes x 8 interfaces x 25 GB/s = 4 TB/s
    assert [link.bandwidth for link in path if link.link_class == "spine"] == [4e12, 4e12]


def test_oversubscription_narrows_the_spine_only() -> None:
    path = topology("dgx-a100", 21, oversubscription=4.0).path(0, 160)
    assert [link.bandwidth for link in path if link.link_class == "spine"] == [1e12, 1e12]
    assert {link.bandwidth for link in path if link.link_class != "spine"} == {25e9}


def test_two_devices_share_an_interface_of_dgx1() -> None:
    graph = topology("dgx-1v", 2)
    nics = [graph.path(rank, 8)[0].target for rank in range(8)]
    assert nics == [f"nic:0.{rail}" for rail in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_dgx1_matrix_is_a_cube_mesh_of_six_links_each() -> None:
    assert [sum(row) for row in DGX1_LINKS] == [6] * 8
    assert tuple(zip(*DGX1_LINKS, strict=True)) == DGX1_LINKS
    # Each quad is fully joined, and each device has one partner in the other quad.
    assert all(DGX1_LINKS[a][b] for a in range(4) for b in range(4) if a != b)
    assert [sum(width > 0 for width in row[4:]) for row in DGX1_LINKS[:4]] == [1] * 4


def test_dgx1_direct_links_of_one_and_two_nvlinks() -> None:
    graph = topology("dgx-1v")
    assert [link.bandwidth for link in graph.path(0, 1)] == [25e9]
    assert [link.bandwidth for link in graph.path(0, 3)] == [50e9]


def test_dgx1_two_hops_take_the_wider_way() -> None:
    # 0-4-7 is 2 and 2 links wide, 0-3-7 only 2 and 1.
    path = topology("dgx-1v").path(0, 7)
    assert stops(path) == ["gpu:0", "gpu:4", "gpu:7"]
    assert [link.bandwidth for link in path] == [50e9, 50e9]


def test_a_bridged_pair_has_all_links_between_its_cards() -> None:
    graph = topology("a100-nvlink-pairs", 2)
    assert [link.bandwidth for link in graph.path(2, 3)] == [300e9]
    assert stops(graph.path(0, 3))[::4] == ["gpu:0", "gpu:3"]


def test_dgx1_in_a_second_node() -> None:
    assert stops(topology("dgx-1v", 2).path(8, 15)) == ["gpu:8", "gpu:12", "gpu:15"]
    assert topology("dgx-1v", 2).path(8, 12)[0].bandwidth == 50e9


def test_pcie_tree() -> None:
    graph = topology("a100-pcie-node")
    assert stops(graph.path(0, 1)) == ["gpu:0", "pcie:0.0", "gpu:1"]
    assert stops(graph.path(1, 2)) == ["gpu:1", "pcie:0.0", "host:0.0", "pcie:0.1", "gpu:2"]
    far = ["gpu:3", "pcie:0.1", "host:0.0", "host:0.1", "pcie:0.2", "gpu:4"]
    assert stops(graph.path(3, 4)) == far
    assert stops(graph.path(4, 3)) == far[::-1]
    assert stops(graph.path(4, 6)) == ["gpu:4", "pcie:0.2", "host:0.1", "pcie:0.3", "gpu:6"]


def test_shared_memory() -> None:
    path = topology("cpu").path(0, 1)
    assert [link.link_class for link in path] == ["shared-memory", "shared-memory"]


def test_nvl72_is_one_domain() -> None:
    assert stops(topology("gb200-nvl72").path(0, 71)) == ["gpu:0", "nvswitch:0", "gpu:71"]


@given(st.data())
def test_paths_connect_and_are_made_of_the_graphs_links(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(SYSTEMS))
    nodes = 1 if name == "cpu" else data.draw(st.integers(1, 3))
    limits = {"nodes_per_leaf": 2} if nodes > 1 else {}
    graph = topology(name, nodes, **limits)
    ranks = st.integers(0, graph.cluster.num_devices - 1)
    rank_a, rank_b = data.draw(ranks), data.draw(ranks)
    path = graph.path(rank_a, rank_b)
    assert set(path) <= set(graph.links())
    assert all(a.target == b.source for a, b in pairwise(path))
    if rank_a == rank_b:
        assert path == ()
    else:
        assert (path[0].source, path[-1].target) == (f"gpu:{rank_a}", f"gpu:{rank_b}")


@pytest.mark.parametrize("name", SYSTEMS)
def test_links_are_listed_once_and_in_both_directions(name: str) -> None:
    nodes = 1 if name == "cpu" else 3
    limits = {"nodes_per_leaf": 2} if nodes > 1 else {}
    ends = [(link.source, link.target) for link in topology(name, nodes, **limits).links()]
    assert len(ends) == len(set(ends))
    assert {(b, a) for a, b in ends} == set(ends)


def test_number_of_links() -> None:
    # Two nodes: 8 to the switch, 8 to the interfaces, 8 to the leaf each; both directions.
    assert len(list(topology("dgx-a100", 2).links())) == 2 * 2 * 24
    # 24 NVLinks of a DGX-1 make 16 edges.
    assert len(list(topology("dgx-1v").links())) == 2 * 16


def test_ring_in_a_node_crosses_nvlink_only() -> None:
    assert topology("dgx-a100", 2).crossed(range(8)) == {"nvlink": 16}


def test_ring_over_two_nodes_leaves_each_once() -> None:
    # 7 edges inside each node, two links each; two edges across, four links each.
    assert topology("dgx-a100", 2).crossed(range(16)) == {"nvlink": 28, "nic": 4, "leaf": 4}


def test_order_of_the_ring_matters() -> None:
    zigzag = [0, 8, 1, 9]
    assert topology("dgx-a100", 2).crossed(zigzag)["nic"] == 8
    assert topology("dgx-a100", 2).crossed(sorted(zigzag))["nic"] == 4


def test_ring_over_leaf_groups_crosses_the_spine_once_each_way() -> None:
    counts = topology("dgx-a100", 40).crossed(range(0, 320, 8))
    assert counts == {"nic": 80, "leaf": 80, "spine": 4}


def test_ring_of_one_crosses_nothing() -> None:
    assert topology("dgx-a100").crossed([3]) == {}


def test_no_rank_is_stored() -> None:
    graph = topology("dgx-h100", 2048)
    assert graph.node_of(16383) == 2047
    assert stops(graph.path(0, 16383))[-2:] == ["nic:2047.7", "gpu:16383"]


def test_unknown_rank() -> None:
    with pytest.raises(CatalogError) as error:
        topology("dgx-a100", 2).path(0, 16)
    assert str(error.value) == "rank=16 is not in 2 x dgx-a100; allowed: 0 to 15"


def test_mesh_of_another_size() -> None:
    system = replace(load_catalog().system("dgx-1v"), devices_per_node=4)
    with pytest.raises(CatalogError) as error:
        build_topology(Cluster(system=system, num_nodes=1))
    assert str(error.value) == (
        "system dgx-1v: fabric nvlink-mesh with devices_per_node=4 is not known; "
        "allowed: 2 (a bridged pair), 8 (the DGX-1)"
    )
