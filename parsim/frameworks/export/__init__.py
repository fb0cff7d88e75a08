"""A scenario's plan as the launch file of a framework.

Each target knows what it can say, refuses plans that break its own rules, and writes what it cannot
say as comments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parsim.errors import InputError, PlanError, alternatives, matching, shown
from parsim.frameworks.export.accelerate import accelerate_yaml
from parsim.frameworks.export.bridge import bridge_overrides
from parsim.frameworks.export.deepspeed import deepspeed_json
from parsim.frameworks.export.megatron import megatron_arguments
from parsim.frameworks.export.scripts import sbatch_script, schedule_csv, torchrun_script
from parsim.frameworks.export.torchtitan import torchtitan_python
from parsim.frameworks.export.torchtitan_toml import torchtitan_toml
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.scenario import Scenario

TARGETS: Mapping[str, Callable[[Scenario, Plan], str]] = {
    "megatron": megatron_arguments,
    "megatron-bridge": bridge_overrides,
    "torchtitan": torchtitan_python,
    "torchtitan-0.2": torchtitan_toml,
    "deepspeed": deepspeed_json,
    "accelerate": accelerate_yaml,
    "torchrun": torchrun_script,
    "sbatch": sbatch_script,
    "csv": schedule_csv,
}
"""What writes the launch file of each framework."""

STACKS: Mapping[str, str] = {
    "megatron": "megatron-lm",
    "megatron-bridge": "megatron-bridge",
    "torchtitan": "torchtitan",
    "torchtitan-0.2": "torchtitan",
}
"""The software under which a search looks at what a framework runs, where there is one."""


def export_plan(scenario: Scenario, plan: Plan, target: str) -> str:
    """The launch file of a plan for a framework.

    Args:
        scenario: model, cluster, batch.
        plan: a legal plan of it.
        target: a name of `TARGETS`.

    Raises:
        InputError: an unknown target.
        PlanError: the framework cannot run the plan; says why and what it can.
    """
    name = matching(target, TARGETS)
    if name is None:
        raise InputError(f"unknown target '{shown(target)}'{alternatives(target, TARGETS)}")
    try:
        return TARGETS[name](scenario, plan)
    except PlanError as error:
        stack = STACKS.get(name)
        # no plan helps other models, nor adapters
        text = isinstance(scenario.model, TransformerSpec) and not scenario.model.lora_rank
        if stack is None or scenario.job.software.id == stack or not text:
            raise
        words = f"{scenario.path or 'SCENARIO'} --set software={stack}"
        raise PlanError(f"{error}; for plans that it runs: parsim search {words}") from None


__all__ = ["TARGETS", "export_plan"]
