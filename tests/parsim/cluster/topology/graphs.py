"""Graphs of systems of the catalog, and ways through them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import Graph, build_graph


def cluster_of(name: str, num_nodes: int = 1, **network: Any) -> Cluster:
    system = load_catalog().system(name)
    if network:
        assert system.network is not None
        system = replace(system, network=replace(system.network, **network))
    return Cluster(system=system, num_nodes=num_nodes)


def graph_of(name: str, num_nodes: int = 1, **network: Any) -> Graph:
    return build_graph(cluster_of(name, num_nodes, **network))


def stops(graph: Graph, a: int, b: int) -> list[str]:
    route = graph.route(a, b)
    return [graph.nodes[graph.source[route[0]]], *(graph.nodes[graph.target[i]] for i in route)]


def rates(graph: Graph, a: int, b: int) -> list[float]:
    return [float(graph.capacity[link]) for link in graph.route(a, b)]
