"""Rules of the cut of a model into pipeline stages."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.record import Plan


def most_stages(model: Model) -> int:
    """Stages that a pipeline may have at most: one a layer, and one for each end with its own."""
    return model.num_layers + len(_end_stages(model))


def _end_stages(model: Model) -> list[str]:
    """What a stage without layers holds: the even cut leaves the last one so first."""
    return [layer.name for layer in (*model.before, *model.behind) if model.behind][:2]


def cut_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Every stage has something to hold, and a cut names each layer once."""
    layers, ends = model.num_layers, _end_stages(model)
    if plan.num_stages > layers + len(ends):
        parts = ", ".join([f"{layers} layers", *ends])
        return (
            f"more stages than layers: pp={plan.pp} x v={plan.v} = {plan.num_stages} stages for "
            f"{parts}; use pp x v <= {layers + len(ends)}"
        )
    cut, name = plan.cut, "stage_layers" if plan.stages is None else "layers of stages"
    if cut is None:
        return None
    if len(cut) != plan.num_stages:
        return (
            f"{name} has {len(cut)} entries, but pp={plan.pp} x v={plan.v} needs {plan.num_stages}"
        )
    if min(cut) < 0 or sum(cut) != layers:
        return (
            f"{name} sums to {sum(cut)}, but the model has {layers} layers; "
            f"entries must be >= 0 and sum to {layers}"
        )
    return None


def most_layers(plan: Plan, model: Model) -> int:
    """Layers of the largest stage, of an even cut where the plan says none."""
    return max(plan.cut or (-(-model.num_layers // plan.num_stages),))
