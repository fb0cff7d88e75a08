"""Plans that are refused because their gradients would be wrong, or added up otherwise than asked.

Reasons that depend on the schedule and its data parallelism alone are in `executor.runnable`.
"""

from __future__ import annotations

import torch

from executor.parallel.precision import (
    check_precision,
    gathered_dtype,
    shards_parameters,
    wire_dtype,
)
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.record import precision
from parsim.schedule import Kind, Schedule


def check_parallel(plan: Plan) -> None:
    """Refuse plans whose gradients or numbers would be wrong.

    Raises:
        PlanError: naming the combination and what to use instead.
    """
    check_precision(plan)
    if plan.replica_microbatches is not None:
        raise PlanError(
            f"replica_microbatches={list(plan.replica_microbatches)} cannot be run yet: every "
            f"replica gets equally many micro-batches; leave it out"
        )
    if plan.cp > 1 or plan.ep > 1:
        axis = "cp" if plan.cp > 1 else "ep"
        raise PlanError(f"{axis}={plan.degree(axis)} cannot be run yet; use {axis}=1")
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        raise PlanError(
            f"zero_stage=0 with dp_shard={plan.dp_shard}: nothing would average the gradients "
            f"over dp_shard; use dp_replicate={plan.dp}, dp_shard=1"
        )
    if plan.sequence_parallel and plan.tp == 1:
        raise PlanError("sequence_parallel=true needs tp > 1; use sequence_parallel=false")
    _check_sums(plan)


def _check_sums(plan: Plan) -> None:
    """Refuse what `fully_shard` cannot add up as the plan says.

    It keeps shares of gradients in the dtype of its shards, fp32, and sums over dp_replicate once
    a step; until then it adds up what it sends.
    """
    if not shards_parameters(plan) or gathered_dtype(plan) == torch.float32:
        return
    where = f"precision={plan.precision!r} with zero_stage={plan.zero_stage}"
    if plan.gradient_precision == "same" and precision(plan.precision).parameter == 2:
        raise PlanError(
            f"{where} and gradient_precision='same': shares of gradients are kept in fp32 there, "
            f"which takes twice the bytes; use gradient_precision='fp32', or zero_stage 0 or 1"
        )
    narrow = wire_dtype(plan) != torch.float32
    if narrow and plan.dp_replicate > 1 and plan.num_microbatches > 1:
        raise PlanError(
            f"{where}, dp_replicate={plan.dp_replicate} and "
            f"reduce_precision={plan.reduce_precision!r}: gradients of the "
            f"{plan.num_microbatches} micro-batches would be added up in bf16, not in fp32; use "
            f"reduce_precision='fp32', dp_replicate=1, or zero_stage 0 or 1"
        )


def check_split_backward(plan: Plan, schedule: Schedule) -> None:
    """Refuse a schedule of I and W whose gradients would be added up in bf16.

    Raises:
        PlanError: bf16 parameters gathered by `fully_shard`, whose sum in fp32 hangs on hooks that
            W does not run.
    """
    if not shards_parameters(plan) or gathered_dtype(plan) == torch.float32:
        return
    if any(action.kind is Kind.W for row in schedule.ranks for action in row):
        raise PlanError(
            f"{schedule.name} splits the backward (I and W), and precision={plan.precision!r} with "
            f"zero_stage={plan.zero_stage} would then add up gradients in bf16; use zero_stage 0 "
            f"or 1, precision='fp32', or a schedule with full backwards (B)"
        )
