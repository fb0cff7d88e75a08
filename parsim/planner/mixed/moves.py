"""Single moves of a placed plan: a layer to another stage, or micro-batches to another replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.stages import plan_cut
from parsim.plan import Plan


def single_moves(job: Job, plan: Plan) -> Iterator[Plan]:
    """One layer from a stage to another, or one unit of micro-batches between two replicas."""
    cut = list(plan_cut(plan, job.model.num_layers))
    for moved in _shifted(cut, 1):
        if min(moved) > 0:
            yield replace(plan, stage_layers=tuple(moved))
    unit = plan.pp if plan.schedule == "interleaved_1f1b" else 1
    for moved in _shifted(list(plan.microbatches), unit):
        other = replace(plan, replica_microbatches=tuple(moved), num_microbatches=max(moved))
        if illegal(job, other) is None:
            yield other


MOST_PARTS = 16
"""Parts among which all moves are tried: 16 x 15."""


def _shifted(parts: list[int], unit: int) -> Iterator[list[int]]:
    if len(parts) > MOST_PARTS:
        return
    for giver in range(len(parts)):
        for taker in range(len(parts)):
            if giver != taker:
                moved = list(parts)
                moved[giver] -= unit
                moved[taker] += unit
                yield moved
