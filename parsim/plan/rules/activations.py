"""Rules of activations: which plans may recompute layers, or move some to the host, and why not."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.names import BALANCED, Recompute
from parsim.plan.record import Plan
from parsim.plan.rules.schedule import splits_backward
from parsim.plan.rules.stages import most_layers


def offload_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The first thing that is wrong with what a plan moves to the host, or None."""
    most = most_layers(plan, model)
    layers, modules = plan.offload_layers, "+".join(plan.offload_modules)
    if modules and layers < 1:
        return (
            f"offload_modules={modules} needs offload_layers, the layers of each stage that they "
            f"are moved of; allowed: 1 to {most}"
        )
    if not 0 <= layers <= most:
        return (
            f"offload_layers={layers} must be layers of a stage, the largest of which has {most}; "
            f"allowed: 0 to {most}"
        )
    if modules and plan.recompute is Recompute.FULL:
        return (
            f"offload_modules={modules}: with recompute=full a layer keeps its input alone; leave "
            f"offload_modules out, or use recompute=none or selective"
        )
    return _beside(plan) if layers else None


def host_state_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """What optimizer states in the host's memory cannot stand beside, or None."""
    what = "optimizer_offload=true"
    if not plan.optimizer_offload:
        return None
    if plan.runs_as_tasks:
        which = f"schedule={plan.schedule!r}" if plan.stages is None else "stages of their own"
        return f"{what} cannot stand beside {which} yet; use optimizer_offload=false"
    if plan.strategy.own_program:
        name = plan.strategy.name
        return f"{what} cannot stand beside strategy {name} yet; use optimizer_offload=false"
    return None


def _beside(plan: Plan) -> str | None:
    """What copies to the host cannot stand beside."""
    what = f"offload_layers={plan.offload_layers}"
    if splits_backward(plan):
        return (
            f"{what}: schedule={plan.schedule!r} needs what I brought back from the host until its "
            f"W, so that little is freed; use a schedule with whole backwards, e.g. '1f1b'"
        )
    if plan.runs_as_tasks:
        which = f"schedule={plan.schedule!r}" if plan.stages is None else "stages of their own"
        return f"{what} cannot stand beside {which} yet; use offload_layers=0"
    if plan.pp > 1 and plan.schedule in BALANCED and plan.actions is None:
        return (
            f"{what}: schedule={plan.schedule!r} moves activations to other ranks already; use "
            f"offload_layers=0, or schedule='1f1b'"
        )
    if plan.strategy.own_program:
        return f"{what} cannot stand beside strategy {plan.strategy.name} yet; use offload_layers=0"
    return None


def recompute_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The first thing that is wrong with a plan's number of recomputed layers, or None."""
    layers, most = plan.recompute_layers, most_layers(plan, model)
    if not 0 <= layers <= most:
        return (
            f"recompute_layers={layers} must be layers of a stage, the largest of which has "
            f"{most}; allowed: 0 to {most}"
        )
    return _beside_recomputed(plan) if layers else None


def _beside_recomputed(plan: Plan) -> str | None:
    """What a number of recomputed layers cannot stand beside."""
    what = f"recompute_layers={plan.recompute_layers}"
    if plan.recompute is Recompute.FULL:
        return (
            f"{what}: recompute=full recomputes all layers; use recompute=none or selective, which "
            f"is then said of the other layers, or recompute_layers=0"
        )
    if plan.offload_layers:
        return (
            f"{what} cannot stand beside offload_layers={plan.offload_layers} yet, as both are of "
            f"each stage's first layers; use recompute_layers=0 or offload_layers=0"
        )
    if plan.stages is not None:
        return f"{what} is of all stages alike; write recompute_layers of each of the stages"
    return None
