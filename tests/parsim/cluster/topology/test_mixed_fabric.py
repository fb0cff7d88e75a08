"""The network above nodes whose interfaces differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.groups import device_nodes, level_devices, mixed_cluster, rank_devices
from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import Graph, build_graph
from parsim.errors import CatalogError
from tests.parsim.cluster.topology.rings import crossed


def system(name: str, **network: float | int | str | None) -> System:
    result = load_catalog().system(name)
    assert result.network is not None
    return replace(result, network=replace(result.network, **network))  # type: ignore[arg-type]


def groups(**named: tuple[System, int]) -> Cluster:
    return mixed_cluster(
        [NodeGroup(name=name, system=system, num_nodes=n) for name, (system, n) in named.items()]
    )


def rate(graph: Graph, name: str) -> float:
    return float(graph.capacity[graph.names.index(name)])


def same(first: Graph, two: Graph) -> bool:
    arrays = ("source", "target", "capacity", "effective", "latency", "devices")
    equal = all((getattr(first, name) == getattr(two, name)).all() for name in arrays)
    return equal and first.nodes == two.nodes and first.link_class == two.link_class


@pytest.mark.parametrize("fabric", ["fat-tree", "rail-optimised", "ring", "torus-2d", "dragonfly"])
def test_equal_groups_have_the_links_of_one_kind(fabric: str) -> None:
    first = system("dgx-h100", fabric=fabric, nodes_per_leaf=2, spines=2)
    assert same(
        build_graph(groups(a=(first, 2), b=(first, 4))),
        build_graph(Cluster(system=first, num_nodes=6)),
    )


def test_each_interface_has_its_own_rate_and_a_leaf_what_its_nodes_send() -> None:
    """Two fast and two slow nodes in leaf groups of two, half of the bandwidth upwards."""
    fast = system("dgx-h100", fabric="fat-tree", nodes_per_leaf=2, oversubscription=2.0)
    slow = system("dgx-a100", nic_bandwidth=12.5e9)
    graph = build_graph(groups(fast=(fast, 2), slow=(slow, 2)))
    assert rate(graph, "nic:1.7->leaf:0") == 50e9
    assert rate(graph, "leaf:1->nic:2.0") == 12.5e9
    assert rate(graph, "leaf:0->spine:0") == 2 * 8 * 50e9 / 2
    assert rate(graph, "leaf:1->spine:0") == 2 * 8 * 12.5e9 / 2
    ports = graph.latency[[name.startswith("nic:") and "leaf" in name for name in graph.names]]
    assert fast.network is not None
    assert slow.network is not None
    assert (ports == max(fast.network.latency, slow.network.latency) / 2).all()


def test_a_leaf_of_both_kinds_has_the_mean() -> None:
    fast = system("dgx-h100", fabric="fat-tree", nodes_per_leaf=2)
    slow = system("dgx-a100", nic_bandwidth=25e9)
    graph = build_graph(groups(fast=(fast, 1), slow=(slow, 2)))
    assert rate(graph, "leaf:0->spine:0") == 8 * (50e9 + 25e9)
    assert rate(graph, "leaf:1->spine:0") == 2 * 8 * 25e9


def test_routers_of_two_nodes_are_joined_at_the_slower_ones_rate() -> None:
    fast, slow = system("dgx-h100", fabric="ring"), system("dgx-a100", nic_bandwidth=25e9)
    graph = build_graph(groups(fast=(fast, 2), slow=(slow, 2)))
    assert rate(graph, "router:0->router:1") == 8 * 50e9 / 2
    assert rate(graph, "router:1->router:2") == 8 * 25e9 / 2


def test_nodes_of_different_sizes_have_all_their_devices() -> None:
    big, small = system("dgx-h100"), replace(system("dgx-a100"), devices_per_node=4)
    cluster = groups(big=(big, 1), small=(small, 2))
    graph = build_graph(cluster)
    assert [graph.nodes[device] for device in graph.devices] == [
        f"gpu:{rank}" for rank in range(16)
    ]
    assert device_nodes(cluster).tolist() == [0] * 8 + [1] * 4 + [2] * 4
    assert crossed(graph, [8, 9, 10, 11]) == {"nvlink": 8}
    assert crossed(graph, [11, 12])["nic"] == 4


def test_a_plans_order_moves_ranks_and_leaves_links() -> None:
    cluster = groups(a=(system("dgx-h100"), 2), b=(system("dgx-a100"), 2))
    usual, turned = build_graph(cluster), build_graph(cluster, order=("b", "a", "b", "a"))
    nodes = device_nodes(cluster)[rank_devices(cluster, ("b", "a", "b", "a"))]
    assert nodes[::8].tolist() == [2, 0, 3, 1]
    assert (turned.devices // 8 == nodes).all()
    assert (turned.capacity == usual.capacity).all()


def test_level_ranks_are_in_order_on_nodes_of_their_own_kind() -> None:
    cluster = groups(a=(system("dgx-h100"), 2), b=(system("dgx-a100"), 1))
    mixed_up = tuple(np.arange(16).reshape(8, 2).T.reshape(-1).tolist()) + tuple(range(16, 24))
    placed = replace(cluster, placement=mixed_up)
    assert rank_devices(placed).tolist() == list(mixed_up)
    assert level_devices(placed).tolist() == list(range(24))
    swapped = replace(cluster, placement=(*range(16, 24), *range(16)))
    assert level_devices(swapped).tolist() == [*range(16, 24), *range(16)]


def test_failed_parts_are_named_by_the_order_of_the_groups() -> None:
    cluster = groups(a=(system("dgx-h100"), 1), b=(system("dgx-a100"), 1))
    graph = build_graph(replace(cluster, failed=("nic:1.0",)))
    assert not any("nic:1.0" in name for name in graph.names)
    every = tuple(f"nic:1.{index}" for index in range(8))
    with pytest.raises(CatalogError, match=r"\(b\): with nic:1\.0.* failed, gpu:8"):
        build_graph(replace(cluster, failed=every))
