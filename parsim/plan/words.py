"""A plan in words for tables (`tp8 pp8 dp16 mb1 m96 1f1b full`), and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import PurePath
from typing import Any

from parsim.plan.fields import PlanFields
from parsim.plan.stages import stage_words
from parsim.plan.strategies import DDP

RARE_FIELDS = (
    *("actions", "action_times", "bucket_bytes", "cp_comm_type", "node_order"),
    *("offload_layers", "offload_modules", "optimizer_offload"),
    *("recompute_layers", "recompute_modules", "replica_microbatches"),
    *("stages", "strategy", "sync_batch_norm"),
)
"""Fields that most plans do not use: they are written only where they say something."""


def plan_document(plan: PlanFields) -> dict[str, Any]:
    """Plain data, enums by name; `etp` and the rare fields only where there are any."""
    document = {field.name: getattr(plan, field.name) for field in fields(plan)}
    document["strategy"] = None if plan.strategy == DDP else plan.strategy.to_json()
    document["stages"] = plan.stages and [stage.to_json() for stage in plan.stages]
    for name in RARE_FIELDS:
        if document[name] in (None, (), False):
            del document[name]
    if plan.etp == 1:
        del document["etp"]
    if plan.cp_comm_type:
        document["cp_comm_type"] = str(plan.cp_comm_type)
    document["recompute"] = plan.recompute.name.lower()
    document["rank_order"] = list(plan.rank_order)
    document["stage_layers"] = list(plan.stage_layers) if plan.stage_layers else None
    return {**document, "dp": plan.dp, "world_size": plan.world_size}


def plan_label(plan: PlanFields) -> str:
    """A short name for tables: `tp8 pp8 dp16 mb1 m96 1f1b full`."""
    return " ".join([
        *_degree_words(plan),
        *_schedule_words(plan),
        *_sharding_words(plan),
        *_recompute_words(plan),
        *_offload_words(plan),
        *([plan.strategy.label()] if plan.strategy != DDP else []),
        *([stage_words(plan.stages, plan.tp)] if plan.stages else []),
        *_placement_words(plan),
    ])  # fmt: skip


def _degree_words(plan: PlanFields) -> Iterator[str]:
    """Degrees of the axes, the rarer ones where they are above 1."""
    yield from (f"tp{plan.tp}", f"pp{plan.pp}", f"dp{plan.dp}")
    if plan.cp > 1:
        yield f"cp{plan.cp}"
        yield from [str(plan.cp_comm_type)] if plan.cp_comm_type else []
    yield from (f"{name}{plan.degree(name)}" for name in ("ep", "etp") if plan.degree(name) > 1)


def _schedule_words(plan: PlanFields) -> Iterator[str]:
    """Micro-batches and the schedule that takes them through the pipeline."""
    yield f"mb{plan.microbatch_size}"
    yield f"m{_span(plan.microbatches)}"
    schedule = plan.schedule if plan.actions is None else PurePath(plan.schedule).name
    yield schedule if plan.pp > 1 else "no-pipeline"
    yield from [f"v{plan.v}"] if plan.v > 1 else []


def _sharding_words(plan: PlanFields) -> Iterator[str]:
    """What ranks share out among them, and the statistics that they share."""
    if plan.zero_stage:
        yield f"zero{plan.zero_stage}"
    if plan.dp_shard > 1 < plan.dp_replicate:
        yield f"shard{plan.dp_shard}"
    if plan.sequence_parallel:
        yield "sp"
    if plan.sync_batch_norm:
        yield "sync-bn"


def _recompute_words(plan: PlanFields) -> Iterator[str]:
    """What backward computes again."""
    if plan.recompute:
        yield f"recompute-{plan.recompute.name.lower()}"
    yield from (f"recompute-{name}" for name in plan.recompute_modules)
    if plan.recompute_layers:
        yield f"recompute{plan.recompute_layers}"


def _offload_words(plan: PlanFields) -> Iterator[str]:
    """What stays in the memory of hosts."""
    if plan.offload_layers:
        yield f"offload{plan.offload_layers}"
    yield from (f"offload-{name}" for name in plan.offload_modules)
    if plan.optimizer_offload:
        yield "optimizer-on-host"


def _placement_words(plan: PlanFields) -> Iterator[str]:
    """Where the nodes differ: their order, which axis is outermost, and the cut."""
    if plan.node_order is None:
        return
    yield "on " + "+".join(plan.node_order)
    axes = [axis for axis in plan.rank_order if plan.degree(axis) > 1 and axis != "tp"]
    if len(axes) > 1:
        yield "by " + "-".join(axes)
    if plan.stage_layers:
        yield "cut " + "-".join(map(str, plan.stage_layers))


def _span(counts: tuple[int, ...]) -> str:
    """Numbers in a few characters: 8, or 12/4 of two replicas, or 4..12 of many."""
    if len(set(counts)) == 1:
        return str(counts[0])
    return "/".join(map(str, counts)) if len(counts) <= 4 else f"{min(counts)}..{max(counts)}"
