"""Which plans are legal, and the error that names value, allowed values and fix.

Each rule reads a plan, the model and the number of devices and returns the message of the first
thing it finds wrong, or None. `check_plan` raises; the search asks `violation` for single plans
and builds its space so that only the arithmetic rules remain (planner/space/).
"""

from __future__ import annotations

from collections.abc import Callable

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan.record import Plan
from parsim.plan.rules.activations import host_state_rules, offload_rules, recompute_rules
from parsim.plan.rules.adapters import adapter_rules
from parsim.plan.rules.batch import batch_rules, node_rules
from parsim.plan.rules.degrees import (
    context_rules,
    degree_rules,
    expert_rules,
    sharding_rules,
    tensor_rules,
    world_rules,
)
from parsim.plan.rules.names import name_rules, schedule_name_rules
from parsim.plan.rules.schedule import schedule_rules, size_rules
from parsim.plan.rules.stages import cut_rules, stage_rules
from parsim.plan.rules.strategy import strategy_rules

Rule = Callable[[Plan, Model, Cluster], str | None]

RULES: tuple[Rule, ...] = (
    degree_rules,
    schedule_name_rules,
    name_rules,
    sharding_rules,
    tensor_rules,
    context_rules,
    expert_rules,
    schedule_rules,
    stage_rules,
    cut_rules,
    world_rules,
    node_rules,
    batch_rules,
    strategy_rules,
    host_state_rules,
    adapter_rules,
    size_rules,
    recompute_rules,
    offload_rules,
)

LAYER_RULES: tuple[Rule, ...] = (recompute_rules, offload_rules)
"""Rules of a number of each stage's layers, which read schedule, chunks and that number."""

SHAPE_RULES: tuple[Rule, ...] = (
    schedule_name_rules,
    schedule_rules,
    stage_rules,
    cut_rules,
    batch_rules,
    adapter_rules,
    size_rules,
)
"""Rules that read schedule or chunks, in the order of `RULES`.

A plan that differs from a legal one in these fields alone breaks none of the others, but those of
`LAYER_RULES`, which come last.
"""


def violation(
    plan: Plan, model: Model, cluster: Cluster, rules: tuple[Rule, ...] = RULES
) -> str | None:
    """The first broken rule's message, or None for a legal plan; of all rules, or of some."""
    for rule in rules:
        message = rule(plan, model, cluster)
        if message is not None:
            return message
    return None


def check_plan(plan: Plan, model: Model, cluster: Cluster) -> None:
    """Raise PlanError unless the plan is legal for this model and cluster."""
    message = violation(plan, model, cluster)
    if message is not None:
        raise PlanError(message)
