"""The actions of each replica of a plan whose stages are tasks."""

from __future__ import annotations

from parsim.plan import Plan
from parsim.plan.stages import warmups
from parsim.schedule.replicas import Rows, StageReplicas


def stage_rows(plan: Plan, replicas: StageReplicas) -> Rows:
    """The actions of each replica of a pipeline that flushes: its own order, or that of 1F1B."""
    if plan.actions is not None:
        return replicas.read(plan.actions, plan.num_microbatches, plan.schedule)
    return replicas.rows(plan.num_microbatches, depths(plan))


def depths(plan: Plan) -> tuple[int, ...]:
    """Forwards that each stage's replicas begin with; empty where stages are alike."""
    stages = plan.stages or ()
    return warmups([stage.replicas for stage in stages], [stage.warmup for stage in stages])
