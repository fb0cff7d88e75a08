"""What a scenario resolves to, as a document and as text."""

from __future__ import annotations

from typing import Any

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
        },
        "cluster": {
            "system": job.system.id,
            "nodes": job.cluster.num_nodes,
            "devices": job.cluster.num_devices,
            "device": job.device.id,
        },
        "software": job.software.id,
        "global_batch_size": found.global_batch_size,
        "plan": found.plan.to_json() if found.plan else None,
    }


def resolved_text(found: Scenario, name: str) -> str:
    """The same in six lines."""
    job = found.job
    return (
        f"{name}: ok\n"
        f"  model    {job.model.name}: {job.model.parameters:,} parameters, "
        f"{job.model.num_layers} layers, {job.model.seq_len} tokens\n"
        f"  cluster  {job.cluster.num_nodes} x {job.system.id}: "
        f"{job.cluster.num_devices} x {job.device.id}\n"
        f"  software {job.software.id}: {job.software.description}\n"
        f"  batch    {found.global_batch_size} sequences per step\n"
        f"  plan     {found.plan.label() if found.plan else 'none (search it)'}\n"
    )
