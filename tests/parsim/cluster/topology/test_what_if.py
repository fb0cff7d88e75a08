"""Graphs with failed, scaled and moved parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.topology import build_graph
from parsim.errors import CatalogError
from tests.parsim.cluster.topology.graphs import cluster_of, graph_of, rates, stops


def test_a_failed_interface_moves_the_route_to_another_rail() -> None:
    graph = graph_of("dgx-h100", 2).without("nic:0.3")
    path = stops(graph, 3, 11)
    assert "nic:0.3" not in path
    assert path[:2] == ["gpu:3", "nvswitch:0"]
    assert stops(graph, 2, 10) == stops(graph_of("dgx-h100", 2), 2, 10)


def test_a_failed_nvlink_moves_the_route_to_another_device() -> None:
    graph = graph_of("dgx-1v").without("gpu:0->gpu:3")
    assert graph.num_links == graph_of("dgx-1v").num_links - 2
    assert len(graph.route(0, 3)) == len(graph.route(3, 0)) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nic:0.9", "there is no part 'nic:0.9' (did you mean 'nic:0."),
        ("gpu:0->gpu:1", "no cable joins gpu:0 and gpu:1"),
    ],
)
def test_only_what_exists_can_fail(name: str, message: str) -> None:
    with pytest.raises(CatalogError) as error:
        graph_of("dgx-h100").without(name)
    assert str(error.value).startswith(message)


def test_devices_that_a_failure_cuts_off() -> None:
    cluster = replace(cluster_of("a100-pcie-node"), failed=("pcie:0.3",))
    with pytest.raises(CatalogError) as error:
        build_graph(cluster)
    assert str(error.value) == (
        "system a100-pcie-node: with pcie:0.3 failed, gpu:6, gpu:7 cannot reach gpu:0; "
        "every device needs a way to the others"
    )


def test_scaled_links() -> None:
    graph = graph_of("dgx-h100", 2)
    half = graph.scaled("nic", 0.5)
    assert rates(half, 0, 8)[2:4] == [25e9, 25e9]
    assert rates(graph.scaled("nic:0.0", 0.5), 0, 8)[2:4] == [25e9, 50e9]
    with pytest.raises(CatalogError, match="factor=0 of nic must be above 0"):
        graph.scaled("nic", 0)


def test_placement_moves_ranks() -> None:
    cluster = replace(cluster_of("dgx-h100"), placement=(7, 6, 5, 4, 3, 2, 1, 0))
    assert stops(build_graph(cluster), 0, 1) == ["gpu:7", "nvswitch:0", "gpu:6"]


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ((0, 1, 1, 3, 4, 5, 6, 7), "puts ranks 1 and 2 on device 1; each device takes one rank"),
        ((0, 8, 2, 3), "puts rank 1 on device 8, which is out of range; allowed: 0 to 7"),
        ((0, 1), "places 2 ranks; the cluster has 8 devices"),
    ],
)
def test_placements_that_are_none(placement: tuple[int, ...], message: str) -> None:
    with pytest.raises(CatalogError) as error:
        replace(cluster_of("dgx-h100"), placement=placement)
    assert str(error.value) == message
    with pytest.raises(CatalogError):
        graph_of("dgx-h100").placed(placement)
