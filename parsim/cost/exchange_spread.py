"""How much of a step's error its collectives make up: by their exposed share and their spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import hypot

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.message import Message
from parsim.cost.collective.spread import collective_spread
from parsim.cost.job import Job
from parsim.cost.kernel.gradient_sums import copies_gradients
from parsim.cost.step.messages import layer_messages
from parsim.cost.step.parameters import largest_layer_parameters
from parsim.plan import Plan, PlanTable


def exchange_spread(job: Job, plan: Plan, *, within: float, after: float) -> float:
    """Standard deviation of the logarithm of a step by its exposed collectives.

    sqrt( (within sd)^2 + (after sd)^2 ): the calls inside layers err together, and so do those
    after the last backward, the two apart from each other; sd is `collective_spread` of the
    collective that is known least. `within` is the share of the step that collectives inside
    layers expose, `after` the share of those after the last backward.

    Source: reports/collectives.md by `collective_spread`.
    Leaves out: messages between stages; hidden collectives, whose errors may expose them.
    """
    table = PlanTable.of([plan])
    return hypot(
        within * _largest(job, _in_layers(job, plan, table)),
        after * _largest(job, _after(job, plan, table)),
    )


def _largest(job: Job, messages: Iterable[Message]) -> float:
    """The spread of the message that is known least."""
    spreads = (
        float(np.max(collective_spread(job.system, each.kind, each.size, each.where)))
        for each in messages
    )
    return max(spreads, default=0.0)


def _in_layers(job: Job, plan: Plan, table: PlanTable) -> Iterator[Message]:
    """Activations over tensor-, context- and expert-parallel ranks, parameters over shards."""
    yield from layer_messages(job, table)
    if plan.zero_stage == 3 and plan.dp_shard > 1:
        layer = largest_layer_parameters(job.model, table) * table.precision.gathered
        yield _message(job, table, "all_gather", "dp_shard", layer)


def _after(job: Job, plan: Plan, table: PlanTable) -> Iterator[Message]:
    """Gradients over replicas and shards."""
    layer = largest_layer_parameters(job.model, table)
    size = layer * table.precision.gathered * job.model.num_layers / plan.pp
    whole = plan.zero_stage == 1 and copies_gradients(job, table)
    scattered = plan.zero_stage and not whole
    kind: CollectiveKind = "reduce_scatter" if scattered else "all_reduce"
    for axis, degree in (("dp_shard", plan.dp_shard), ("dp_replicate", plan.dp_replicate)):
        if degree > 1:
            yield _message(job, table, kind, axis, size)


def _message(job: Job, table: PlanTable, kind: CollectiveKind, axis: str, size: Array) -> Message:
    """A collective of the groups of one axis of the mesh."""
    degree: Ints = getattr(table, axis)
    where = groups(job.system, size=degree, stride=table.stride(axis), world=table.world_size)
    return Message(kind=kind, axis=axis, size=size, where=where)
