"""The plan block of a written scenario: choices, without what the reader finds by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from parsim.cost.step.stages import even_cut
from parsim.plan import Plan
from parsim.plan.names import V_SHAPED
from parsim.plan.strategies import DDP
from parsim.scenario.record import Scenario
from parsim.scenario.writing.values import values_of
from parsim.sim.cuts import with_better_cut

_RARE = (
    *("recompute_layers", "offload_layers"),
    *("recompute_modules", "offload_modules", "optimizer_offload", "sync_batch_norm"),
)
"""Fields that most plans do not use, which are not written then."""


def plan_block(plan: Plan) -> dict[str, Any]:
    """The plan's choices; what follows from them is a comment, so that one of them can change."""
    from ruamel.yaml.comments import CommentedMap

    values = _written(plan)
    left_out = {"precision", *_following(plan)}  # precision stands in the training block
    block = CommentedMap(
        (key, value) for key, value in values.items() if value is not None and key not in left_out
    )
    block.yaml_set_start_comment(
        f"dp: {plan.dp} and num_microbatches: {plan.num_microbatches} follow from the devices and "
        f"the batch",
        indent=2,
    )
    return block


def _written(plan: Plan) -> dict[str, Any]:
    """The plan's fields as a file writes them; None: not at all."""
    values = values_of(plan)
    values["bucket_size"] = values.pop("bucket_bytes")
    values["recompute"] = plan.recompute.name.lower()
    values["cp_comm_type"] = str(plan.cp_comm_type) if plan.cp_comm_type else None
    values["strategy"] = None if plan.strategy == DDP else plan.strategy.to_json()
    values["stages"] = plan.stages and [stage.to_json() for stage in plan.stages]
    for name in _RARE:
        values[name] = values[name] or None
    values["actions"] = None
    if plan.from_file:
        values["schedule"] = str(Path(plan.schedule).resolve())
    return values


def _following(plan: Plan) -> Iterator[str]:
    """Fields that the reader finds by itself (`parsim/scenario/plan.py`)."""
    yield from ("num_microbatches", "dp_replicate")
    if plan.dp_shard == (plan.dp if plan.zero_stage else 1):
        yield "dp_shard"
    if plan.from_file:
        yield from ("pp", "v")
    if plan.v == 1 or plan.schedule in V_SHAPED:
        yield "v"


def with_said_cut(scenario: Scenario, plan: Plan) -> Plan:
    """The plan with its even cut said, where the reader would choose the balanced one."""
    if with_better_cut(scenario.job, plan, scenario.memory_margin) == plan:
        return plan
    return replace(plan, stage_layers=even_cut(scenario.job.model.num_layers, plan.num_stages))
