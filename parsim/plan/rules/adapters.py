"""Which plans train adapters beside frozen weights."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.names import WITHOUT_FLUSH
from parsim.plan.record import Plan


def adapter_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Why a model with frozen weights cannot be trained so, or None.

    Servers, averages and versions are priced for weights that all change.
    """
    del cluster
    if model.trained is None:
        return None
    if plan.runs_own_program:
        name = plan.strategy.name
        return f"strategy.name={name} keeps whole models alike; with lora_rank use name=ddp"
    if plan.schedule in WITHOUT_FLUSH and plan.pp > 1:
        return (
            f"schedule={plan.schedule} keeps versions of all weights; with lora_rank use one that "
            f"flushes, such as 1f1b"
        )
    return None
