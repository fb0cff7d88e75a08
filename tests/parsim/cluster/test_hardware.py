"""Clusters of nodes."""

from __future__ import annotations

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError


def test_cluster_counts_devices() -> None:
    cluster = Cluster(system=load_catalog().system("dgx-a100"), num_nodes=128)
    assert cluster.num_devices == 1024
    assert cluster.device.id == "a100-sxm-80gb"


def test_cluster_needs_a_node() -> None:
    with pytest.raises(CatalogError) as error:
        Cluster(system=load_catalog().system("dgx-a100"), num_nodes=0)
    assert str(error.value) == "nodes=0 must be at least 1"


def test_nodes_without_network_cannot_be_joined() -> None:
    with pytest.raises(CatalogError) as error:
        Cluster(system=load_catalog().system("cpu"), num_nodes=2)
    assert str(error.value) == (
        "system cpu has no network, so nodes=2 cannot be joined; use nodes=1 or a system with a "
        "network"
    )
