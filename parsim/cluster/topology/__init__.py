"""A cluster comes in; the graph of its directed links, with routes and bisections, leaves.

    gpu:0 ── nvswitch:0 ── gpu:1                                                  in a node
    gpu:0 ── pcie:0.0 ── nic:0.0 ── leaf:0.0 ── nic:1.0 ── pcie:1.0 ── gpu:8     on one rail
    gpu:0 ── nvswitch:0 ── gpu:5 ── pcie:0.5 ── nic:0.5 ── leaf:0.5 ── ...       to another rail
    ... nic:0.0 ── leaf:0.0 ── spine:0 ── leaf:1.0 ── nic:32.0 ...               leaf group to group

`build_graph` makes it from a Cluster: cables in a node (node_cables.py, or those that a catalog
file writes), cables between nodes (fabrics.py), routes by shortest path (routes.py).
"""

from __future__ import annotations

from parsim.cluster.topology.bisection import bisection
from parsim.cluster.topology.build import build_graph
from parsim.cluster.topology.graph import Graph
from parsim.cluster.topology.link import Link
from parsim.cluster.topology.node_cables import DGX1_LINKS

__all__ = ("DGX1_LINKS", "Graph", "Link", "bisection", "build_graph")
