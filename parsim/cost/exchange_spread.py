"""How much of a step's error its collectives make up: by their exposed share and their spread."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot

import numpy as np

from parsim.cost.collectives import Groups, Kind, collective_spread, groups
from parsim.cost.experts import expert_groups
from parsim.cost.job import Job
from parsim.cost.stages import largest_layer_parameters
from parsim.plan import Plan, PlanTable
from parsim.plan.record import precision

Exchange = tuple[Kind, float, Groups]
"""A collective of a plan: kind, bytes, and where its ranks are."""


def exchange_spread(job: Job, plan: Plan, *, within: float, after: float) -> float:
    """Standard deviation of the logarithm of a step by its exposed collectives.

    sqrt( (within sd)^2 + (after sd)^2 ): the calls inside layers err together, and so do those
    after the last backward, the two apart from each other; sd is `collective_spread` of the
    collective that is known least.

    Args:
        job: model, cluster, software.
        plan: the plan.
        within: share of the step that collectives inside layers expose.
        after: the share of those after the last backward.

    Source: reports/collectives.md by `collective_spread`.
    Leaves out: messages between stages; hidden collectives, whose errors may expose them.
    """
    table = PlanTable.of([plan])
    return hypot(
        within * _largest(job, _in_layers(job, plan, table)),
        after * _largest(job, _after(job, plan, table)),
    )


def _largest(job: Job, exchanges: Iterator[Exchange]) -> float:
    spreads = (
        float(np.max(collective_spread(job.system, kind, size, where)))
        for kind, size, where in exchanges
    )
    return max(spreads, default=0.0)


def _in_layers(job: Job, plan: Plan, table: PlanTable) -> Iterator[Exchange]:
    """Activations over tensor-, context- and expert-parallel ranks, parameters over shards."""
    numbers = precision(plan.precision)
    tokens = plan.microbatch_size * job.model.seq_len / plan.cp
    size = tokens * job.model.hidden_size * numbers.activation
    if plan.tp > 1:
        kind: Kind = "all_gather" if plan.sequence_parallel else "all_reduce"
        yield kind, size, _groups(job, table, "tp", plan.tp)
    if plan.cp > 1:
        yield "all_gather", size, _groups(job, table, "cp", plan.cp)
    experts = job.model.experts
    if experts is not None and plan.ep > 1:
        yield "all_to_all", size * experts.top_k / plan.tp, expert_groups(job, table)[0]
    if plan.zero_stage == 3 and plan.dp_shard > 1:
        layer = float(largest_layer_parameters(job.model, table)[0]) * numbers.gathered
        yield "all_gather", layer, _groups(job, table, "dp_shard", plan.dp_shard)


def _after(job: Job, plan: Plan, table: PlanTable) -> Iterator[Exchange]:
    """Gradients over replicas and shards."""
    layer = float(largest_layer_parameters(job.model, table)[0])
    size = layer * precision(plan.precision).gathered * job.model.num_layers / plan.pp
    kind: Kind = "reduce_scatter" if plan.zero_stage else "all_reduce"
    for axis, degree in (("dp_shard", plan.dp_shard), ("dp_replicate", plan.dp_replicate)):
        if degree > 1:
            yield kind, size, _groups(job, table, axis, degree)


def _groups(job: Job, table: PlanTable, axis: str, degree: int) -> Groups:
    return groups(
        job.system,
        size=np.array([degree], dtype=np.int64),
        stride=table.stride(axis),
        world=table.world_size,
    )
