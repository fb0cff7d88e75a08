"""Graphs of every fabric: routes, capacities, counts, what-if copies, placements."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import DGX1_LINKS, build_graph
from parsim.cluster.topology.node_cables import node_cables
from parsim.errors import CatalogError
from tests.parsim.cluster.topology.graphs import graph_of, rates, stops
from tests.parsim.cluster.topology.rings import crossed

SYSTEMS = list(load_catalog().systems)


def test_unused_interfaces_of_a_written_node_carry_nothing() -> None:
    """A node whose cables are written out has those interfaces that its network counts."""
    system = load_catalog().system("dgx-1v")
    written = replace(system, topology=node_cables(system), devices_per_node=1)
    assert written.network is not None
    few = replace(written, network=replace(written.network, nics_per_node=1))
    graph = build_graph(Cluster(system=few, num_nodes=2))
    parts = {graph.nodes[part] for part in graph.source.tolist()}
    assert {part for part in parts if part.startswith("nic")} == {"nic:0.0", "nic:1.0"}


def test_nvswitch() -> None:
    graph = graph_of("dgx-a100")
    assert stops(graph, 3, 5) == ["gpu:3", "nvswitch:0", "gpu:5"]
    assert {graph.link_class[i] for i in graph.route(3, 5)} == {"nvlink"}
    assert rates(graph, 3, 5) == [300e9, 300e9]
    # 82 % of 300 GB/s is what NCCL's ring reaches.
    assert [graph.effective[i] for i in graph.route(3, 5)] == pytest.approx([246e9] * 2)
    assert sum(graph.latency[i] for i in graph.route(3, 5)) == pytest.approx(3.4e-6)


def test_one_rail_across_nodes() -> None:
    graph = graph_of("dgx-a100", 2)
    path = ["gpu:3", "pcie:0.3", "nic:0.3", "leaf:0.3", "nic:1.3", "pcie:1.3", "gpu:11"]
    assert stops(graph, 3, 11) == path
    links = [graph.link_class[i] for i in graph.route(3, 11)]
    assert links == ["pcie", "pcie", "nic", "nic", "pcie", "pcie"]
    # HDR, behind PCI Express 4.0 x16
    assert rates(graph, 3, 11) == [31.5e9, 31.5e9, 25e9, 25e9, 31.5e9, 31.5e9]
    assert sum(graph.latency[i] for i in graph.route(3, 11)) == pytest.approx(2e-6)


def test_to_another_rail_over_the_gpu_on_it() -> None:
    path = stops(graph_of("dgx-a100", 2), 3, 13)
    assert path[:5] == ["gpu:3", "nvswitch:0", "gpu:5", "pcie:0.5", "nic:0.5"]
    assert path[5:] == ["leaf:0.5", "nic:1.5", "pcie:1.5", "gpu:13"]


def test_a_fat_trees_leaf_joins_all_interfaces() -> None:
    path = stops(graph_of("dgx-a100", 2, fabric="fat-tree"), 3, 13)
    assert path == ["gpu:3", "pcie:0.3", "nic:0.3", "leaf:0", "nic:1.5", "pcie:1.5", "gpu:13"]


def test_across_leaf_groups() -> None:
    graph = graph_of("dgx-a100", 21)
    assert stops(graph, 0, 160)[3:6] == ["leaf:0.0", "spine:0", "leaf:1.0"]
    spine = [i for i in graph.route(0, 160) if graph.link_class[i] == "spine"]
    # 20 nodes x 25 GB/s on one rail
    assert [graph.capacity[i] for i in spine] == [500e9, 500e9]
    fat = graph_of("dgx-a100", 21, fabric="fat-tree")
    # 20 nodes x 8 interfaces x 25 GB/s = 4 TB/s
    assert max(rates(fat, 0, 160)) == 4e12


def test_oversubscription_narrows_the_spine_only() -> None:
    graph = graph_of("dgx-a100", 21, oversubscription=4.0)
    by_class = {graph.link_class[i]: graph.capacity[i] for i in graph.route(0, 160)}
    assert by_class == {"pcie": 31.5e9, "nic": 25e9, "spine": 125e9}


def test_two_devices_share_an_interface_of_dgx1() -> None:
    graph = graph_of("dgx-1v", 2)
    nics = [stops(graph, rank, 8)[2] for rank in range(8)]
    assert nics == [f"nic:0.{rail}" for rail in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_dgx1_matrix_is_a_cube_mesh_of_six_links_each() -> None:
    assert [sum(row) for row in DGX1_LINKS] == [6] * 8
    assert tuple(zip(*DGX1_LINKS, strict=True)) == DGX1_LINKS
    # Each quad is fully joined, and each device has one partner in the other quad.
    assert all(DGX1_LINKS[a][b] for a in range(4) for b in range(4) if a != b)
    assert [sum(width > 0 for width in row[4:]) for row in DGX1_LINKS[:4]] == [1] * 4


def test_dgx1_direct_links_of_one_and_two_nvlinks() -> None:
    graph = graph_of("dgx-1v")
    assert rates(graph, 0, 1) == [25e9]
    assert rates(graph, 0, 3) == [50e9]


def test_dgx1_two_hops_take_the_wider_way() -> None:
    # 0-4-7 is 2 and 2 links wide, 0-3-7 only 2 and 1.
    graph = graph_of("dgx-1v")
    assert stops(graph, 0, 7) == ["gpu:0", "gpu:4", "gpu:7"]
    assert rates(graph, 0, 7) == [50e9, 50e9]


def test_a_bridged_pair_has_all_links_between_its_cards() -> None:
    graph = graph_of("a100-nvlink-pairs", 2)
    assert rates(graph, 2, 3) == [300e9]
    assert stops(graph, 0, 3)[2:5] == ["nic:0.0", "leaf:0", "nic:1.0"]
    # What PCI Express is measured to carry out of a pair is not narrowed again on the way there.
    assert min(graph.effective[i] for i in graph.route(0, 3)) == pytest.approx(0.77 * 31.5e9)


def test_pcie_tree() -> None:
    graph = graph_of("a100-pcie-node")
    assert stops(graph, 0, 1) == ["gpu:0", "pcie:0.0", "gpu:1"]
    assert stops(graph, 1, 2) == ["gpu:1", "pcie:0.0", "host:0.0", "pcie:0.1", "gpu:2"]
    far = ["gpu:3", "pcie:0.1", "host:0.0", "host:0.1", "pcie:0.2", "gpu:4"]
    assert stops(graph, 3, 4) == far
    assert stops(graph, 4, 3) == far[::-1]
    assert graph.link_class[graph.route(3, 4)[2]] == "cpu"


def test_pcie_cards_share_one_interface_over_their_hosts() -> None:
    graph = graph_of("a100-pcie-node", 2)
    out = ["gpu:7", "pcie:0.3", "host:0.1", "host:0.0", "nic:0.0", "leaf:0"]
    assert stops(graph, 7, 8)[:6] == out


def test_shared_memory() -> None:
    graph = graph_of("cpu")
    assert {graph.link_class[i] for i in graph.route(0, 1)} == {"shared-memory"}


def test_nvl72_is_one_domain_with_a_grace_for_two_devices() -> None:
    graph = graph_of("gb200-nvl72")
    assert stops(graph, 0, 71) == ["gpu:0", "nvswitch:0", "gpu:71"]
    (link,) = graph.route_between("gpu:3", "host:0.1")
    assert (graph.link_class[link], graph.capacity[link]) == ("c2c", 450e9)


def test_every_device_reaches_its_host() -> None:
    graph = graph_of("dgx-h100")
    ways = [graph.route_between(f"gpu:{rank}", f"host:0.{rank // 4}") for rank in range(8)]
    assert {graph.link_class[link] for way in ways for link in way} == {"pcie"}
    assert {graph.capacity[link] for way in ways for link in way} == {63e9}


@given(st.data())
def test_routes_connect(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(SYSTEMS))
    nodes = 1 if name == "cpu" else data.draw(st.integers(1, 3))
    limits: dict[str, Any] = {"nodes_per_leaf": 2, "spines": 2} if nodes > 1 else {}
    graph = graph_of(name, nodes, **limits)
    ranks = st.integers(0, len(graph.devices) - 1)
    rank_a, rank_b = data.draw(ranks), data.draw(ranks)
    links = [graph.link(index) for index in graph.route(rank_a, rank_b)]
    assert all(a.target == b.source for a, b in pairwise(links))
    if rank_a == rank_b:
        assert links == []
    else:
        assert (links[0].source, links[-1].target) == (f"gpu:{rank_a}", f"gpu:{rank_b}")


@pytest.mark.parametrize("name", SYSTEMS)
def test_links_are_listed_once_and_in_both_directions(name: str) -> None:
    nodes = 1 if name == "cpu" else 3
    limits: dict[str, Any] = {"nodes_per_leaf": 2} if nodes > 1 else {}
    graph = graph_of(name, nodes, **limits)
    ends = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    assert len(ends) == len(set(ends)) == graph.num_links
    assert [(b, a) for a, b in ends[::2]] == ends[1::2]
    assert (graph.capacity > 0).all()
    assert (graph.effective <= graph.capacity * (1 + 1e-12)).all()


def test_ring_in_a_node_crosses_nvlink_only() -> None:
    assert crossed(graph_of("dgx-a100", 2), range(8)) == {"nvlink": 16}


def test_ring_over_two_nodes_leaves_each_once_a_direction() -> None:
    # 7 hops in each node, two links each; one way out of each node, from 7 to 8 and from 15 to 0.
    graph = graph_of("dgx-a100", 2, fabric="fat-tree")
    assert crossed(graph, range(16)) == {"nvlink": 28, "pcie": 8, "nic": 4}


def test_order_of_the_ring_matters() -> None:
    graph = graph_of("dgx-a100", 2)
    zigzag = [0, 8, 1, 9]
    assert crossed(graph, zigzag)["nic"] == 8
    assert crossed(graph, sorted(zigzag))["nic"] == 4


def test_ring_of_one_crosses_nothing() -> None:
    assert crossed(graph_of("dgx-a100"), [3]) == {}


def test_16384_devices() -> None:
    graph = graph_of("dgx-h100", 2048)
    assert len(graph.devices) == 16384
    path = stops(graph, 0, 16383)
    assert path[-2:] == ["pcie:2047.7", "gpu:16383"]
    assert "spine:0" in path


def test_unknown_rank() -> None:
    with pytest.raises(CatalogError) as error:
        graph_of("dgx-a100", 2).route(0, 16)
    assert str(error.value) == "rank=16 is not in the cluster; allowed: 0 to 15"


def test_mesh_of_another_size() -> None:
    system = replace(load_catalog().system("dgx-1v"), devices_per_node=6)
    with pytest.raises(CatalogError) as error:
        build_graph(Cluster(system=system, num_nodes=1))
    assert str(error.value) == (
        "system dgx-1v: fabric nvlink-mesh with devices_per_node=6 is not known; "
        "allowed: 2 (a bridged pair), 4 (all joined), 8 (the DGX-1); others write a topology, "
        "or full-mesh where one link joins each two devices"
    )
