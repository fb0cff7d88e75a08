"""Rules of replicas that differ: the order of unlike nodes, and batches of unequal size."""

from __future__ import annotations

from parsim.cluster.groups import order_problem
from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.record import Plan


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
