"""What a scenario resolves to, as a document and as text."""

from __future__ import annotations

from typing import Any

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.mixed import in_groups
from parsim.scenario import Scenario


def resolved(found: Scenario) -> dict[str, Any]:
    """The document of `parsim check --json`."""
    job = found.job
    return {
        "schema_version": 1,
        "name": found.name,
        "model": {
            "name": job.model.name,
            "parameters": job.model.parameters,
            "layers": job.model.num_layers,
            "seq_len": job.model.seq_len,
            "active_parameters": job.model.active_parameters,
        },
        "cluster": _cluster(job.cluster),
        "software": job.software.id,
        "global_batch_size": found.global_batch_size,
        "plan": found.plan.to_json() if found.plan else None,
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """One kind of node, or the groups by their names."""
    if not cluster.groups:
        return _nodes(cluster.system, cluster.num_nodes)
    groups = {one.name: _nodes(one.system, one.num_nodes) for one in cluster.groups}
    return {"nodes": cluster.num_nodes, "devices": cluster.num_devices, "groups": groups}


def _nodes(system: System, number: int) -> dict[str, Any]:
    return {
        "system": system.id,
        "nodes": number,
        "devices": number * system.devices_per_node,
        "device": system.device.id,
    }


def resolved_text(found: Scenario, name: str) -> str:
    """The same in six lines, with experts in eight."""
    job = found.job
    devices = " + ".join(
        f"{one.num_nodes * one.system.devices_per_node} x {one.system.device.id}"
        for one in in_groups(job.cluster).groups
    )
    text = (
        f"{name}: ok\n"
        f"  model    {job.model.name}: {job.model.parameters:,} parameters, "
        f"{job.model.num_layers} layers, {job.model.seq_len} tokens\n"
        f"  cluster  {job.cluster.words}: {devices}\n"
        f"  software {job.software.id}: {job.software.description}\n"
        f"  batch    {found.global_batch_size} sequences per step\n"
        f"  plan     {found.plan.label() if found.plan else 'none (search it)'}\n"
    )
    return text + _experts_text(found)


def _experts_text(found: Scenario) -> str:
    model = found.job.model
    op = model.experts
    if op is None:
        return ""
    return (
        f"  experts  {op.top_k} of {op.count} for each token, which meets "
        f"{model.active_parameters:,} parameters\n"
        f"  run      no: experts are simulated, the executor does not build them\n"
    )
