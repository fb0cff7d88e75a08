"""The cluster block of a written scenario."""

from __future__ import annotations

from typing import Any

from parsim.cluster.hardware import System
from parsim.cluster.reader import Catalog, load_catalog
from parsim.scenario.record import Scenario
from parsim.scenario.writing.values import changed_fields

_CLUSTER_KEYS = (
    *("system", "nodes", "catalog", "device", "placement", "failed"),
    *("devices_per_node", "intra", "network"),
)


def cluster_block(scenario: Scenario) -> dict[str, Any]:
    """Systems and numbers of nodes, what differs from the catalog, and where the job is placed."""
    cluster = scenario.job.cluster
    known = load_catalog(scenario.catalog)
    block: dict[str, Any] = {}
    if scenario.catalog:
        block["catalog"] = [str(path) for path in scenario.catalog]
    if cluster.placement is not None:
        block["placement"] = list(cluster.placement)
    if cluster.failed:
        block["failed"] = list(cluster.failed)
    if cluster.groups:
        groups = {
            group.name: _nodes(known, group.system, group.num_nodes) for group in cluster.groups
        }
        return {"groups": groups, **block}
    block |= _nodes(known, cluster.system, cluster.num_nodes)
    return {key: block[key] for key in _CLUSTER_KEYS if key in block}


def _nodes(known: Catalog, system: System, number: int) -> dict[str, Any]:
    """So many nodes of a system: its id, and what differs from the catalog's, in blocks."""
    base = known.system(system.id)
    block: dict[str, Any] = {"system": system.id, "nodes": number}
    if system.device != base.device:
        block["device"] = system.device.id
    if system.devices_per_node != base.devices_per_node:
        block["devices_per_node"] = system.devices_per_node
    if system.intra != base.intra:
        block["intra"] = changed_fields(base.intra, system.intra)
    if system.network is not None and base.network is not None:
        changes = changed_fields(base.network, system.network)
        if "devices_per_node" in block:  # else the interfaces of unused devices drop out
            changes["nics_per_node"] = system.network.nics_per_node
        if changes:
            block["network"] = changes
    return block
