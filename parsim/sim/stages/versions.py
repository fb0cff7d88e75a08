"""The rule by which a plan that never flushes keeps versions of its weights."""

from __future__ import annotations

from parsim.plan import Plan
from parsim.plan.names import WITHOUT_FLUSH
from parsim.schedule.versions import Versions
from parsim.sim.stages.rows import depths


def versions_of(plan: Plan) -> Versions | None:
    """The rule of weight versions of a plan that never flushes; None of one that does."""
    if plan.schedule not in WITHOUT_FLUSH:
        return None
    return Versions(
        rule=plan.schedule,
        pp=plan.pp,
        batch=plan.num_microbatches if plan.schedule == "pipedream_2bw" else 1,
        counts=tuple(stage.replicas for stage in plan.stages or ()),
        depths=depths(plan),
        late=tuple(int(stage.late_update) for stage in plan.stages or ()),
    )
