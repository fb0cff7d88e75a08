"""Plans of equal stages from which a stage with replicas of its own takes its prices."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from parsim.cost.job import Job
from parsim.plan import Plan, Recompute


class Variant(NamedTuple):
    """A plan whose stages are alike; `microbatches` are 0 for as many as the plan has.

    `recompute_layers` of each stage are computed again, None for the plan's own.
    """

    replicas: int
    recompute: Recompute
    tp: int
    microbatches: int = 0
    recompute_layers: int | None = None


def alike(
    plan: Plan,
    replicas: int = 1,
    recompute: Recompute | None = None,
    tp: int | None = None,
    microbatches: int = 0,
    recompute_layers: int | None = None,
) -> Plan:
    """The plan with as many replicas and tensor-parallel ranks of every stage, as 1F1B."""
    degree = plan.tp if tp is None else tp
    again = plan.recompute_layers if recompute_layers is None else recompute_layers
    return replace(
        plan,
        tp=degree,
        sequence_parallel=plan.sequence_parallel and degree > 1,
        stages=None,
        stage_layers=plan.cut if plan.v == 1 else None,
        schedule="1f1b",
        v=1,
        actions=None,
        dp_replicate=replicas,
        dp_shard=1,
        recompute=plan.recompute if recompute is None else recompute,
        recompute_layers=again,
        num_microbatches=microbatches or plan.num_microbatches,
    )


def with_room(job: Job, ranks: int) -> Job:
    """The job on one node that holds so many ranks, where it is on one node."""
    system = job.system
    if job.cluster.num_nodes > 1 or ranks <= system.devices_per_node:
        return job
    larger = replace(system, devices_per_node=ranks)
    return replace(job, cluster=replace(job.cluster, system=larger))
