"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has any number of chunks, sequence parallelism needs tensor parallelism, ZeRO needs
replicas, and a number of recomputed layers is not all of them where full recomputation is a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.cuts import balanced_cuts
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.planner.result import EvaluatedPlan
from parsim.planner.space.families import Families
from parsim.planner.space.listing import Listing
from parsim.planner.space.options import (
    PLAIN,
    Values,
    combinations,
    other_plans,
    ruled,
    with_setting,
)
from parsim.sim.cuts import chooses_cut


def balanced_twins(job: Job, families: Families) -> Iterator[Families]:
    """Families with balanced cuts, those of each number of stages that has one together."""
    table = families.plain
    stages = table.pp * table.v
    several = np.flatnonzero(table.pp > 1)
    if not len(several) or not chooses_cut(job, table.plan(int(several[0]))):
        return
    for number, cut in balanced_cuts(job, table.common.precision, stages[several].tolist()).items():
        some = families.take((table.pp > 1) & (stages == number)).sharing({"stage_layers": cut})
        plan = replace(some.table(np.zeros(1, dtype=np.int64)).plan(0), recompute_layers=0)
        if illegal(job, plan) is None:
            yield some


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

    families: Families | None
    enumerated: int
    illegal: int
    reasons: dict[str, int]

    @property
    def table(self) -> PlanTable | None:
        """All legal plans as columns."""
        return None if self.families is None else self.families.table()


def enumerate_plans(job: Job, space: PlanSpace) -> Enumeration:
    """Every legal plan of a space.

    Legality depends on the shape (degrees, micro-batch, schedule, chunks); each shape is checked
    once with the same rules as a single plan, and its options (ZeRO, sequence parallelism) and what
    saves memory are those that make sense for it.

    Raises:
        PlanError: the space holds a value that no plan could ever have.
    """
    every = list(combinations(job, space))
    pieces, reasons = list[Families](), Counter[str]()
    listed: dict[tuple[object, ...], Families | None] = {}
    for (decisive, _), alike in _by_what_is_plain(job, every).items():
        if decisive not in listed:
            rows = Listing.of(job, with_setting(space, alike[0]))
            listed[decisive] = rows.families()
            reasons += rows.reasons
        families = listed[decisive]
        if families is not None:
            pieces += _with_settings(job, families, every[0], alike)
    families = Families.joined(pieces) if pieces else None
    legal = 0 if families is None else len(families)
    return Enumeration(
        families=families,
        enumerated=legal + reasons.total(),
        illegal=reasons.total(),
        reasons=dict(reasons),
    )


def _by_what_is_plain(
    job: Job, every: Sequence[Values]
) -> dict[tuple[tuple[Any, ...], ...], list[Values]]:
    """Settings by what they share, which saves no memory: what decides legality, and all else."""
    alike: dict[tuple[tuple[Any, ...], ...], list[Values]] = {}
    for values in every:
        shared = tuple(value for name, value in values.items() if name not in PLAIN)
        alike.setdefault((ruled(job, values), shared), []).append(values)
    return alike


def _with_settings(
    job: Job, families: Families, first: Values, alike: Sequence[Values]
) -> Iterator[Families]:
    """Families with settings that have the same plain plans, where they are other plans."""
    common, values = families.settings[0], alike[0]
    kept = other_plans(families.plain, first, values, saved=False)
    if not kept.any():
        return
    some = families if kept.all() else families.take(kept)
    plain = {name: value for name, value in values.items() if name not in PLAIN}
    some = replace(some, plain=some.plain.sharing(plain)).with_variants(
        [replace(common, **each) for each in alike],
        [partial(other_plans, first=first, values=each, saved=True) for each in alike],
    )
    if len(some):
        yield some
        yield from balanced_twins(job, some)
