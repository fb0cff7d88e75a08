"""Which legal plans parsim's own executor can run, or compile."""

from __future__ import annotations

from typing import TypeGuard

from parsim.model.model import Model
from parsim.model.operators import Attention
from parsim.plan.record import Plan
from parsim.plan.rules.executor.context import unmergeable
from parsim.plan.rules.executor.models import (
    unbuildable,
    wrong_experts,
    wrong_heads,
    wrong_vocabulary,
)
from parsim.plan.rules.executor.schedules import (
    first_split,
    is_balanced,
    moved_between_ranks,
    wrong_split,
)
from parsim.plan.rules.executor.training import wrong_training


def unrunnable(plan: Plan, model: Model) -> str | None:
    """Why the executor refuses a plan of this model, or None."""
    if model.loss is None:
        graph = "end its graph with a node of op cross_entropy, in a model file"
        mend = "set a head" if model.branching is None else graph
        return f"{model.name} ends without a loss to train it with; {mend}"
    core = model.attention
    windows = (op.window for layer in model.kinds for op in layer.operators if _windowed(op))
    rules = (
        unbuildable(model),
        wrong_vocabulary(plan, model),
        wrong_experts(plan, model),
        wrong_heads(plan, model),
    )
    broken = next((message for message in rules if message is not None), None)
    return (
        broken
        or wrong_training(plan)
        or unmergeable(
            plan,
            dropout=core is not None and core.dropout,
            window=next(windows, None),
            latent=core is not None and core.value_dim is not None,
        )
        or wrong_split(plan)
        or moved_between_ranks(plan)
    )


def _windowed(op: object) -> TypeGuard[Attention]:
    return isinstance(op, Attention) and op.window is not None


def uncompilable(plan: Plan, model: Model) -> str | None:
    """Why the executor does not run a plan of this model with software.compile, or None."""
    split, flat = first_split(plan), model.attention is None
    reasons = {
        "experts: how many tokens each gets changes with the step": model.experts is not None,
        f"tp={plan.tp}: collectives beside a layer's products cannot be traced": plan.tp > 1,
        f"cp={plan.cp}: messages between context ranks cannot be traced": plan.cp > 1,
        f"{plan.schedule} splits the backward (it has {split}): a compiled one is whole": bool(
            split
        ),
        f"strategy {plan.strategy.name}: its workers run eagerly": plan.strategy.own_program,
        "stages of their own and pipelines without flush: they run eagerly": plan.runs_as_tasks,
        f"{model.name}: layers that are no transformer's run eagerly": flat,
        f"schedule {plan.schedule}: what layers save is sent to another rank": is_balanced(plan),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    return reason and f"software.compile=true with {reason}; use compile: false"
