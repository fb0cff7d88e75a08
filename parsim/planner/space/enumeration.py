"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has any number of chunks, sequence parallelism needs tensor parallelism, ZeRO needs
replicas, and a number of recomputed layers is not all of them where full recomputation is a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.cuts import balanced_cuts
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.planner.result import EvaluatedPlan
from parsim.planner.space.listing import Listing
from parsim.planner.space.options import combinations, other_plans, ruled, with_setting
from parsim.sim.cuts import chooses_cut


def balanced_twins(job: Job, table: PlanTable) -> Iterator[PlanTable]:
    """Balanced cuts of a table's pipelines, a table for each number of stages that has one."""
    (common,) = table.settings
    stages = table.pp * table.v
    several = np.flatnonzero(table.pp > 1)
    if not len(several) or not chooses_cut(job, table.plan(int(several[0]))):
        return
    for number, cut in balanced_cuts(job, common.precision, stages[several].tolist()).items():
        rows = table.take((table.pp > 1) & (stages == number))
        plan = replace(rows.plan(0), stage_layers=cut, recompute_layers=0)
        if illegal(job, plan) is None:
            yield rows.sharing({"stage_layers": cut})


def better_twins(ranked: Iterable[EvaluatedPlan], most: int) -> list[EvaluatedPlan]:
    """The first plans, of those that differ by their cut alone the first one."""
    better: dict[Plan, EvaluatedPlan] = {}
    for each in ranked:
        better.setdefault(replace(each.plan, stage_layers=None), each)
    return list(islice(better.values(), most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """The legal plans and how many were looked at.

    `reasons` maps the first broken rule's message to how many plans it refused. A plan of which
    the space asks for the fewest recomputed layers that fit has `FEWEST` of them.
    """

    table: PlanTable | None
    enumerated: int
    illegal: int
    reasons: dict[str, int]


def enumerate_plans(job: Job, space: PlanSpace) -> Enumeration:
    """Every legal plan of a space.

    Legality depends on the shape (degrees, micro-batch, schedule, chunks); each shape is checked
    once with the same rules as a single plan, and its options (ZeRO, recompute, sequence
    parallelism) are those that make sense for it.

    Raises:
        PlanError: the space holds a value that no plan could ever have.
    """
    every = list(combinations(job, space))
    tables, enumerated, reasons = [], 0, Counter[str]()
    listed: dict[tuple[object, ...], PlanTable | None] = {}
    for values in every:
        decisive = ruled(job, values)
        if decisive not in listed:
            rows = Listing.of(job, with_setting(space, values))
            listed[decisive] = rows.table()
            reasons += rows.reasons
            enumerated += rows.reasons.total()
        table = listed[decisive]
        if table is None:
            continue
        kept = other_plans(table, every[0], values)
        if kept.any():
            some = table if kept.all() else table.take(kept)
            shared = some.sharing(values)
            tables += (each := [shared, *balanced_twins(job, shared)])
            enumerated += sum(map(len, each))
    return Enumeration(
        table=PlanTable.joined(tables) if tables else None,
        enumerated=enumerated,
        illegal=reasons.total(),
        reasons=dict(reasons),
    )
