"""Rules of degrees: as many ranks as devices, and something to shard where states are shared."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.record import Plan

ZERO_STAGES = (0, 1, 2, 3)
"""What ZeRO shards: nothing, optimizer states, gradients too, parameters too."""


def degree_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Degrees and counts start at 1."""
    degrees = ("tp", "pp", "dp_replicate", "dp_shard", "cp", "ep", "etp")
    for name in (*degrees, "microbatch_size", "num_microbatches", "v"):
        if getattr(plan, name) < 1:
            return f"{name}={getattr(plan, name)} must be at least 1"
    return None


def world_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """A plan uses every device of its cluster."""
    if plan.world_size == cluster.num_devices:
        return None
    if plan.stages is not None:
        return (
            f"world size mismatch: stages have {plan.world_size} ranks (replicas x "
            f"{_in_words(plan.stage_tp)}), but the cluster has {cluster.num_devices} devices; "
            f"change replicas"
        )
    rest = plan.pp * plan.cp * plan.tp
    fix = f"pp x cp x tp = {rest} must divide {cluster.num_devices}"
    if cluster.num_devices % rest == 0:
        fix = f"use dp={cluster.num_devices // rest}"
    return (
        f"world size mismatch: pp={plan.pp} x dp={plan.dp} x cp={plan.cp} x tp={plan.tp} = "
        f"{plan.world_size}, but the cluster has {cluster.num_devices} devices; {fix}"
    )


def _in_words(stage_tp: tuple[int, ...]) -> str:
    return f"tp={stage_tp[0]}" if len({*stage_tp}) == 1 else f"tp={list(stage_tp)}"


def sharding_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """States are shared where ranks are there to share them."""
    if plan.zero_stage not in ZERO_STAGES:
        stages = ", ".join(map(str, ZERO_STAGES))
        return f"zero_stage={plan.zero_stage} is unknown; allowed: {stages}"
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        return (
            f"zero_stage=0 shards nothing, but dp_shard={plan.dp_shard}; use "
            f"dp_replicate={plan.dp} or zero_stage 1, 2 or 3"
        )
    if plan.zero_stage > 0 and plan.dp_shard * plan.cp == 1:
        return (
            f"zero_stage={plan.zero_stage} has nothing to shard over with dp_shard=1; "
            f"use zero_stage=0 or dp_shard > 1"
        )
    return None
