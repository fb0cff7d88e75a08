"""Which plans may recompute a number of layers of each stage, and why others may not."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.activations import Recompute
from parsim.plan.record import Plan
from parsim.plan.rules.cut import most_layers


def recompute_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The first thing that is wrong with a plan's number of recomputed layers, or None."""
    layers, most = plan.recompute_layers, most_layers(plan, model)
    if not 0 <= layers <= most:
        return (
            f"recompute_layers={layers} must be layers of a stage, the largest of which has "
            f"{most}; allowed: 0 to {most}"
        )
    return _beside(plan) if layers else None


def _beside(plan: Plan) -> str | None:
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
