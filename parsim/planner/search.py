"""Search: the best of all legal plans of a space, and what became of the others."""

from __future__ import annotations

import time

import numpy as np

from parsim.cost.job import Job
from parsim.errors import NoFeasiblePlan
from parsim.plan import PlanSpace
from parsim.planner.equal.best_shapes import BestShapes
from parsim.planner.mixed.best_first import search_mixed
from parsim.planner.nearest_miss import nearest_miss_message
from parsim.planner.result import Progress, Ranked, SearchResult, shown
from parsim.planner.space import check_space, enumerate_plans, nothing_legal
from parsim.planner.space.left_out import left_out

__all__ = ("Progress", "Ranked", "SearchResult", "search")

PROVEN = (
    "proven: every legal plan of the space was evaluated (tier B), or does not fit or is slower "
    "by a lower bound"
)


def search(
    job: Job,
    space: PlanSpace,
    *,
    top: int = 10,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> SearchResult:
    """Find the plans of a space that are the fastest by tier B and fit.

    Args:
        job: model, cluster, software.
        space: allowed values; the batch and what all plans share.
        top: how many plans to return.
        progress: called with (plans done, plans in all).
        time_limit: stop after so many seconds and return the best so far.

    Raises:
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    begin = time.perf_counter()
    check_space(job, space)
    listed = enumerate_plans(job, space)
    if listed.table is None:
        raise NoFeasiblePlan(nothing_legal(job, space, listed))
    if job.mixed:
        return search_mixed(job, space, listed, listed.table, top, progress, time_limit, begin)
    work = BestShapes(job, listed, listed.table, space.memory_margin, top)
    work.run(progress, np.inf if time_limit is None else begin + time_limit)
    known, stopped = work.known, _how_far(work)
    fits, tight = known.fits, known.tight
    if not (fits | tight).any() and stopped:
        raise NoFeasiblePlan(
            f"{stopped}, and none of those fits the devices; give it more time, or a smaller space"
        )
    if not (fits | tight).any():
        nearest = listed.table.plan(work.nearest())
        raise NoFeasiblePlan(nearest_miss_message(job, nearest, space.memory_margin))
    best = known.fastest(listed.table, fits if fits.any() else tight, top)
    fastest_tight = known.fastest(listed.table, tight, 1) if fits.any() else []
    plans, faster_tight = shown(job, best, fastest_tight[0] if fastest_tight else None)
    return SearchResult(
        plans=plans,
        faster_tight=faster_tight,
        counts={
            "enumerated": listed.enumerated,
            "illegal": listed.illegal,
            "out_of_memory": int(known.too_large.sum()),
            "tight": int(tight.sum()),
            "slower": int(work.slower.sum()),
            "evaluated": int(fits.sum()),
        },
        illegal_reasons=listed.reasons,
        optimality=f"{stopped}: best so far" if stopped else PROVEN,
        left_out=left_out(job.software, space),
        seconds=time.perf_counter() - begin,
        limits=(known.usable,),
    )


def _how_far(work: BestShapes) -> str:
    """Why a search stopped and after how much; empty where all is done."""
    if not work.stopped:
        return ""
    share = 100.0 * work.decided / len(work.table)
    return f"{work.stopped} after {share:.0f} % of the legal plans"
