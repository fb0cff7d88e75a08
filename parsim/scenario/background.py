"""The background block: traffic that shares the links with the steps, for tier C."""

from __future__ import annotations

from parsim.cluster.background import Background, Stream, check_network
from parsim.cluster.hardware import Cluster
from parsim.scenario.positions import Tree
from parsim.scenario.schema import ScenarioFile


def build_background(tree: Tree, file: ScenarioFile, cluster: Cluster) -> Background:
    """The block as a record.

    Raises:
        ScenarioError: a stream that cannot run on the cluster.
    """
    block = file.background
    streams = tuple(Stream(name=name, **one.given()) for name, one in block.streams.items())
    found = Background(streams=streams, storage_bandwidth=block.storage_bandwidth)
    with tree.located("background"):
        found.check()
        check_network(found, cluster.system.network is not None, cluster.system.id)
    return found
