"""What a plan may ask of branches on devices apart."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.model.operators import Operator
from parsim.model.paths import Branching
from parsim.plan.names import Recompute
from parsim.plan.record import Plan
from parsim.plan.strategies import BranchParallel


def branch_rules(
    plan: Plan, strategy: BranchParallel, model: Model, cluster: Cluster
) -> Iterator[str]:
    """What may be laid on devices apart: a graph's branches, as many as there are."""
    branching, devices = model.branching, strategy.devices
    if branching is None or not branching.branches:
        yield (
            f"name={strategy.name} needs branches that may run at the same time, and {model.name} "
            f"has none: no two of its parts compute at once; models that have some: inception-v3, "
            f"resnet50 (beside its shortcuts), amoebanet-d-18-256, multi-task; or use tp or pp"
        )
        return
    if any(not getattr(op, "owns_weight", True) for op in _operators(model)):
        yield (
            f"name={strategy.name}: operations of {model.name} share a table, whose gradient would "
            f"be on several devices; use a model whose operations own their weights, or pp"
        )
    if not 2 <= devices <= branching.width:
        yield (
            f"devices={devices}: at most {branching.width} branches of {model.name} may run at the "
            f"same time; allowed: 2 to {branching.width}"
        )
    elif plan.dp % devices:
        yield f"devices={devices} does not divide dp={plan.dp} workers; use a dp that it divides"
    yield from _beside_branches(plan, strategy, cluster)
    yield from _placed(strategy, branching)


def _beside_branches(plan: Plan, strategy: BranchParallel, cluster: Cluster) -> Iterator[str]:
    """What branches on devices apart cannot be combined with."""
    if cluster.groups:
        yield f"name={strategy.name} needs nodes of one kind; use cluster.system"
    if plan.recompute is not Recompute.NONE or plan.recompute_modules or plan.recompute_layers:
        yield (
            f"name={strategy.name} keeps what its branches make; use recompute=none and no "
            f"recompute_layers"
        )
    if plan.sync_batch_norm:
        yield (
            f"name={strategy.name} normalises over the samples of its {strategy.devices} devices "
            f"together; use sync_batch_norm=false, or name=ddp"
        )


def _operators(model: Model) -> Iterator[Operator]:
    return (op for layer in model.layers for op in layer.operators)


def _placed(strategy: BranchParallel, branching: Branching) -> Iterator[str]:
    """Branches that a user puts on devices."""
    for name, device in strategy.branches or ():
        try:
            branching.numbered(name)
        except PlanError as reason:
            yield str(reason).removeprefix("strategy.")
        if not 0 <= device < strategy.devices:
            yield f"branches: {name}: {device} is no device; allowed: 0 to {strategy.devices - 1}"
