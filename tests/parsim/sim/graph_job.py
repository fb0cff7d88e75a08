"""Small graphs on V100, for the plans that hold a model together."""

from __future__ import annotations

from dataclasses import replace

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.graph.build import build_graph
from parsim.model.graph.record import Graph


def graph_job(graph: Graph, devices: int, nodes: int) -> Job:
    """A graph on so many V100 of each node."""
    system = load_catalog().system("dgx-1v")
    if devices < 8:
        system = replace(system, devices_per_node=devices, devices_per_host=devices, topology=())
    cluster = Cluster(system=system, num_nodes=nodes)
    return Job(model=build_graph(graph), cluster=cluster, software=software("generic"))
