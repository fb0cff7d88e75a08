"""Rules of batches: what adds up to the global batch, and replicas that differ."""

from __future__ import annotations

from parsim.cluster.groups import order_problem
from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan.record import Plan


def microbatches_for(global_batch_size: int, microbatch_size: int, dp: int) -> int:
    """Micro-batches per replica and step.

    Raises:
        PlanError: the global batch is not divisible.
    """
    message = _undivided(global_batch_size, microbatch_size, dp)
    if message is not None:
        raise PlanError(message)
    return global_batch_size // (microbatch_size * dp)


def wrong_batch(plan: Plan, batch: int) -> str | None:
    """Why a plan trains with another number of sequences a step than its job, or None."""
    if plan.global_batch_size == batch:
        return None
    size, counts = plan.microbatch_size, plan.replica_microbatches
    if counts is None:
        given = f"num_microbatches={plan.num_microbatches} x microbatch_size={size} x dp={plan.dp}"
        fix = f"use num_microbatches={batch // (size * plan.dp)}"
        undivided = _undivided(batch, size, plan.dp)
    else:
        given = f"replica_microbatches={list(counts)} x microbatch_size={size}"
        fix = f"sum to {batch // size}" if batch % size == 0 else "use another microbatch_size"
        undivided = None
    return undivided or f"{given} = {plan.global_batch_size}, but global_batch_size={batch}; {fix}"


def _undivided(batch: int, size: int, dp: int) -> str | None:
    unit = size * dp
    if batch % unit == 0:
        return None
    return (
        f"global_batch_size={batch} is not divisible by microbatch_size={size} x dp={dp} = {unit}; "
        f"use a multiple of {unit}, or a microbatch_size x dp that divides {batch}"
    )


def node_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The order of a mixed cluster's nodes."""
    return order_problem(cluster, plan.node_order)


def batch_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Micro-batches of each replica, where they differ."""
    counts = plan.replica_microbatches
    if counts is None:
        return None
    given = f"replica_microbatches={list(counts)}"
    if len(counts) != plan.dp:
        return f"{given} has {len(counts)} entries, but dp={plan.dp}; give one for each replica"
    if min(counts) < 1 or max(counts) != plan.num_microbatches:
        return (
            f"{given}: entries must be at least 1, and num_microbatches={plan.num_microbatches} "
            f"the largest of them"
        )
    if plan.actions is not None:
        return f"{given} needs a schedule that parsim builds for each number of micro-batches"
    if plan.schedule == "interleaved_1f1b" and any(count % plan.pp for count in counts):
        return f"{given}: schedule='interleaved_1f1b' needs multiples of pp={plan.pp}"
    return _in_step(plan, counts, given)


def _in_step(plan: Plan, counts: tuple[int, ...], given: str) -> str | None:
    """Replicas that exchange shards or tokens within every pass must have as many passes."""
    if plan.ep > 1:
        return (
            f"{given}: with ep={plan.ep} replicas send each other tokens in every micro-batch, so "
            f"that they need equally many; use ep=1"
        )
    if plan.zero_stage < 2:
        return None
    groups = zip(*[iter(counts)] * plan.dp_shard, strict=True)
    if all(len(set(group)) == 1 for group in groups):
        return None
    return (
        f"{given}: with zero_stage={plan.zero_stage} the replicas of a dp_shard group exchange "
        f"shards in every micro-batch, so that they need equally many; use zero_stage 0 or 1"
    )
