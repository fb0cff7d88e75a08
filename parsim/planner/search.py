"""Search: the best of all legal plans of a space, and what became of the others."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from parsim.cost.job import Job
from parsim.errors import InputError, NoFeasiblePlan
from parsim.plan import PlanSpace, PlanTable
from parsim.plan.record import AUTO
from parsim.planner.equal.best_shapes import SLOWEST, BestShapes
from parsim.planner.mixed.best_first import search_mixed
from parsim.planner.nearest_miss import nearest_miss_message
from parsim.planner.result import (
    Progress,
    Ranked,
    Request,
    SearchResult,
    Shown,
    Sighted,
    shown,
)
from parsim.planner.space import Enumeration, check_space, enumerate_plans, nothing_legal
from parsim.planner.space.cuts import better_twins
from parsim.planner.space.left_out import left_out
from parsim.planner.strategies import with_strategies
from parsim.planner.unequal.judged import unequal_plans

__all__ = ("Progress", "Ranked", "SearchResult", "search", "search_front")

from parsim.training_run import TrainingGoal

WHATEVER = TrainingGoal()
"""No whole run is asked for."""

SEEDS = 10
"""Best equal plans at least whose degrees and micro-batches unequal stages are looked for with."""

PROVEN_FRONT = (
    f"proven: every legal plan of the space was evaluated (tier B), or does not fit, or takes more "
    f"than {SLOWEST:g} times the fastest's step, or one of these is at least as fast with no more "
    f"memory, by lower bounds of both"
)

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
    goal: TrainingGoal = WHATEVER,
    sighted: Sighted | None = None,
) -> SearchResult:
    """Find the plans of a space that are the fastest by tier B and fit.

    Args:
        job: model, cluster, software.
        space: allowed values; the batch and what all plans share.
        top: how many plans to return.
        progress: called with (plans done, plans in all).
        time_limit: stop after so many seconds and return the best so far; ten plans at most are
            described after it.
        goal: how long one trains at what price, for the whole run of each plan.
        sighted: called with the best step so far and its gap to the best possible; on nodes of one
            kind.

    Raises:
        InputError: a largest bubble on nodes of several kinds.
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    begin = time.perf_counter()
    until = np.inf if time_limit is None else begin + time_limit
    listed, table = _legal(job, space)
    if job.mixed:
        if space.max_bubble is not None:
            raise InputError("search.max_bubble needs nodes of one kind; leave it away")
        if space.unequal_stages:
            raise InputError("search.unequal_stages needs nodes of one kind; leave it away")
        if AUTO in (space.schedule or ()):
            raise InputError(f"search.schedule: {AUTO} needs nodes of one kind; name others")
        request = Request(top=top, progress=progress, until=until, goal=goal)
        mixed = search_mixed(job, space, listed, table, request, begin)
        return with_strategies(job, space, table, mixed, top=top, goal=goal, until=until)
    both = 2 if len({plan.stage_layers for plan in table.settings}) > 1 else 1  # cuts of a plan
    wanted = max(top, SEEDS) if space.unequal_stages else top
    work = BestShapes(job, table, space, both * wanted)
    work.run(progress, until, sighted)
    known, stopped = work.known, _how_far(work)
    fits, tight = known.fits, known.tight
    if not (fits | tight).any():
        raise NoFeasiblePlan(_nothing_fits(job, space, work))
    best = known.fastest(table, fits if fits.any() else tight, both * wanted)
    best = better_twins(best, wanted)
    beside = ""
    if space.unequal_stages and fits.any():
        unequal = unequal_plans(job, space, best, until)
        best = sorted([*best, *unequal.plans], key=lambda entry: entry.step_time)
        beside = f"; {unequal.simulated:,} plans with unequal stages were simulated beside them, "
        beside += "of which nothing is proven"
    best = best[:top]
    fastest_tight = known.fastest(table, tight, 1) if fits.any() else []
    plans = shown(job, best, fastest_tight[0] if fastest_tight else None, goal, until)
    optimality = f"{stopped}: best so far{_gap_words(work)}" if stopped else PROVEN
    result = _result(job, space, listed, work, plans, optimality + beside, begin)
    return with_strategies(job, space, table, result, top=top, goal=goal, until=until)


def search_front(
    job: Job,
    space: PlanSpace,
    *,
    progress: Progress | None = None,
    time_limit: float | None = None,
    goal: TrainingGoal = WHATEVER,
) -> SearchResult:
    """Find the plans that fit and that no other beats in step time and in memory, fastest first.

    Plans slower than twice the fastest are left out.

    Arguments and errors are those of `search`.

    Raises:
        InputError: the nodes are of several kinds.
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    begin = time.perf_counter()
    until = np.inf if time_limit is None else begin + time_limit
    if job.mixed:
        raise InputError("the front of time and memory needs nodes of one kind; use --top instead")
    if space.unequal_stages:
        raise InputError("search.unequal_stages is for the fastest plans, not for a front of them")
    if space.strategies:
        raise InputError("search.strategies: the front of time and memory has none; leave it away")
    listed, table = _legal(job, space)
    work = BestShapes(job, table, space, None)
    work.run(progress, until)
    if not work.known.fits.any():
        raise NoFeasiblePlan(_nothing_fits(job, space, work))
    front = work.known.front(table, work.worst)
    stopped = _how_far(work)
    optimality = f"{stopped}: front so far" if stopped else PROVEN_FRONT
    plans = shown(job, front, None, goal, until)
    return _result(job, space, listed, work, plans, optimality, begin)


def _legal(job: Job, space: PlanSpace) -> tuple[Enumeration, PlanTable]:
    """Every legal plan of the space, of which there is at least one."""
    check_space(job, space)
    listed = enumerate_plans(job, space)
    if listed.table is None:
        raise NoFeasiblePlan(nothing_legal(job, space, listed))
    return listed, listed.table


def _nothing_fits(job: Job, space: PlanSpace, work: BestShapes) -> str:
    stopped = _how_far(work)
    if stopped:
        return (
            f"{stopped}, and none of those fits the devices; give it more time, or a smaller space"
        )
    if work.known.idle.any():
        least = float(np.nanmin(work.known.bubble))
        return (
            f"no plan that fits idles less than max_bubble={space.max_bubble:g} of the pipeline "
            f"phase; the least of those looked at is {least:.3g}: allow as much"
        )
    if space.memory_cap is not None:  # as if the device had no more
        least = min(job.device.memory, space.memory_cap + job.device.context_memory)
        system = replace(job.system, device=replace(job.device, memory=least))
        job = replace(job, cluster=replace(job.cluster, system=system))
    nearest = work.table.plan(work.nearest())
    return nearest_miss_message(job, nearest, space.memory_margin)


def _result(
    job: Job,
    space: PlanSpace,
    listed: Enumeration,
    work: BestShapes,
    shown_plans: Shown,
    optimality: str,
    begin: float,
) -> SearchResult:
    known = work.known
    return SearchResult(
        plans=shown_plans.plans,
        faster_tight=shown_plans.faster_tight,
        counts={
            "enumerated": listed.enumerated,
            "illegal": listed.illegal,
            "out_of_memory": int(known.too_large.sum()),
            "tight": int(known.tight.sum()),
            "slower": int(work.slower.sum()),
            **({"idle": int(known.idle.sum())} if space.max_bubble is not None else {}),
            "evaluated": int(known.fits.sum()),
        },
        illegal_reasons=listed.reasons,
        optimality=optimality + shown_plans.cut,
        left_out=left_out(job, space),
        space=space,
        seconds=time.perf_counter() - begin,
        limits=(known.usable,),
    )


def _gap_words(work: BestShapes) -> str:
    """By how much the best of all may be faster, where a plan is known to fit."""
    if not np.isfinite(work.gap):
        return ""
    return f", at most {100.0 * work.gap:.1f} % slower than the best of all"


def _how_far(work: BestShapes) -> str:
    """Why a search stopped and after how much; empty where all is done."""
    if not work.stopped:
        return ""
    share = 100.0 * work.decided / len(work.table)
    return f"{work.stopped} after {share:.0f} % of the legal plans"
