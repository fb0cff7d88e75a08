"""What a scenario resolves to, a line for each part, as `parsim check` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cluster.groups import in_groups
from parsim.model.adapters import adapters_note
from parsim.model.model import Model
from parsim.plan.rules.executor.runnable import unbuildable, unrunnable
from parsim.scenario import Scenario


def resolved_text(scenario: Scenario) -> str:
    """What a scenario resolves to, a line for each part; and why it cannot be run, where it cannot.

    The reason is the first that the executor's own rules have against the plan, or the model.
    """
    parts = "".join(f"  {part:8} {words}\n" for part, words in _resolved(scenario))
    return f"{scenario.path or scenario.name}: ok\n{parts}"


def _resolved(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Each part of a scenario, and what it resolves to."""
    job, plan, model = scenario.job, scenario.plan, scenario.job.model
    devices = " + ".join(
        f"{group.num_nodes * group.system.devices_per_node} x {group.system.device.id}"
        for group in in_groups(job.cluster).groups
    )
    layers = f"{model.num_layers} layers{_tokens(model)}"
    yield "model", f"{model.name}: {model.parameters:,} parameters, {layers}"
    yield "cluster", f"{job.cluster.words}: {devices}"
    yield "software", f"{job.software.id}: {job.software.description}"
    sample = "sequence" if model.tokens > 1 else "sample"
    yield "batch", f"{scenario.global_batch_size} {sample}s per step"
    yield "plan", plan.label() if plan else "none (search it)"
    if experts := model.experts:
        met = f"{experts.top_k} of {experts.count} for each token, which meets"
        yield "experts", f"{met} {model.active_parameters:,} parameters"
    if note := adapters_note(model):
        yield "trained", note
    if refused := unrunnable(plan, model) if plan else unbuildable(model):
        yield "run", f"no: {refused}"


def _tokens(model: Model) -> str:
    return f", {model.tokens} tokens" if model.tokens > 1 else ""
