"""Plans whose cut nobody fixes are looked at with two: as many layers a stage, and balanced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.cuts import balanced_cuts
from parsim.plan import Plan, PlanTable
from parsim.planner.result import EvaluatedPlan
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
