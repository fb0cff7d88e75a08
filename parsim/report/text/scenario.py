"""What a scenario resolves to, as text."""

from __future__ import annotations

from parsim.cluster.groups import in_groups
from parsim.model.model import Model
from parsim.scenario import Scenario


def resolved_text(scenario: Scenario) -> str:
    """What a scenario resolves to, in six lines; with experts in eight."""
    job, plan = scenario.job, scenario.plan
    sample = "sequence" if job.model.tokens > 1 else "sample"
    devices = " + ".join(
        f"{group.num_nodes * group.system.devices_per_node} x {group.system.device.id}"
        for group in in_groups(job.cluster).groups
    )
    text = (
        f"{scenario.path or scenario.name}: ok\n"
        f"  model    {job.model.name}: {job.model.parameters:,} parameters, "
        f"{job.model.num_layers} layers{_tokens(job.model)}\n"
        f"  cluster  {job.cluster.words}: {devices}\n"
        f"  software {job.software.id}: {job.software.description}\n"
        f"  batch    {scenario.global_batch_size} {sample}s per step\n"
        f"  plan     {plan.label() if plan else 'none (search it)'}\n"
    )
    experts = job.model.experts
    if experts is None:
        return text
    return text + (
        f"  experts  {experts.top_k} of {experts.count} for each token, which meets "
        f"{job.model.active_parameters:,} parameters\n"
        f"  run      no: experts are simulated, the executor does not build them\n"
    )


def _tokens(model: Model) -> str:
    return f", {model.tokens} tokens" if model.tokens > 1 else ""
