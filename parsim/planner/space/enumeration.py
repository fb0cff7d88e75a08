"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has any number of chunks, sequence parallelism needs tensor parallelism, ZeRO needs
replicas, and a number of recomputed layers is not all of them where full recomputation is a plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from parsim.cost.job import Job
from parsim.plan import PlanSpace, PlanTable
from parsim.planner.space.cuts import balanced_twins
from parsim.planner.space.listing import Listing
from parsim.planner.space.settings import combinations, other_plans, ruled, with_setting


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
