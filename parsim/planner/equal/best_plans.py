"""Search on nodes of one kind: legal plans come in, the best of them as a result leave."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parsim.errors import NoFeasiblePlan
from parsim.plan import PlanSpace
from parsim.plan.names import AUTO
from parsim.planner.equal.best_shapes import BestShapes
from parsim.planner.equal.best_steps import SLOWEST
from parsim.planner.limits import capped, in_order
from parsim.planner.nearest_miss import nearest_miss_message
from parsim.planner.question import Question
from parsim.planner.result import (
    EvaluatedPlan,
    SearchResult,
    Shown,
    gap_words,
    shown,
    unknown_words,
)
from parsim.planner.space import Enumeration
from parsim.planner.space.enumeration import better_twins
from parsim.planner.space.families import Families
from parsim.planner.space.left_out import left_out
from parsim.planner.stop import TIME_IS_UP
from parsim.sim.cuts import CUTS_OF_A_PLAN, CUTS_OF_AUTO

if TYPE_CHECKING:
    from parsim.planner.unequal.judged import Funnel

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


ORDERS = "; an order of schedule=auto is the shortest found, and not proven to be that of all"
"""What is not proven of plans whose orders are found by machine."""


def search_equal(question: Question) -> SearchResult:
    """Find the fastest plans that fit, as `search` asks.

    Raises:
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    job, space, request = question.job, question.space, question.request
    wanted = max(request.top, SEEDS) if space.unequal_stages else request.top
    work = BestShapes(job, question.families, space, wanted, request.stop)
    work.run(request.progress, request.sighted)
    known = work.known
    fits = bool(known.fits.any())
    if not fits and not known.tight.any():
        raise NoFeasiblePlan(_nothing_fits(question, work))
    best = _fastest(question, work, wanted)
    funnel: Funnel | None = None
    if space.unequal_stages and fits:
        best, funnel = _with_unequal(question, best)
    tight = _in_order(question, known.fastest(work.table, known.tight, 1)) if fits else []
    plans = shown(job, best[: request.top], tight[0] if tight else None, request)
    stopped = how_far(work, question.listed)
    nearly = _unknown(work, question.listed) or gap_words(work.gap)
    optimality = f"{stopped}: best so far{nearly}" if stopped else PROVEN
    result = _result(question, work, plans, optimality)
    return result if funnel is None else _beside(result, funnel)


def _fastest(question: Question, work: BestShapes, wanted: int) -> list[EvaluatedPlan]:
    """The fastest plans that fit, or of those that may fit where none surely does."""
    known, cuts = work.known, _cuts_of_a_plan(question.families)
    allowed = known.fits if known.fits.any() else known.tight
    best = known.fastest(work.table, allowed, cuts * wanted)
    return _in_order(question, better_twins(best, wanted))


def _with_unequal(
    question: Question, best: list[EvaluatedPlan]
) -> tuple[list[EvaluatedPlan], Funnel]:
    """The plans with those of unequal stages among them, and what became of the latter."""
    from parsim.planner.unequal.judged import unequal_plans  # the partitioner: few searches ask

    request = question.request
    unequal, funnel = unequal_plans(
        question.job, question.space, best, request.top, request.stop.until
    )
    return sorted([*best, *unequal], key=lambda entry: entry.step_time), funnel


def _cuts_of_a_plan(families: Families) -> int:
    """Plans that may differ by their cut alone, at most."""
    if len({plan.stage_layers for plan in families.settings}) == 1:
        return 1
    return CUTS_OF_AUTO if AUTO in families.plain.schedules else CUTS_OF_A_PLAN


def _in_order(question: Question, plans: list[EvaluatedPlan]) -> list[EvaluatedPlan]:
    """Plans with the orders that were found for them, which their steps are of."""
    job, space = question.job, question.space
    return [each._replace(plan=in_order(job, space, each.plan)) for each in plans]


def _beside(result: SearchResult, funnel: Funnel) -> SearchResult:
    """The result that also says what became of unequal stages."""
    return replace(
        result,
        counts={**result.counts, **funnel.counts()},
        optimality=f"{result.optimality}; {funnel.words()}",
    )


def front_equal(question: Question) -> SearchResult:
    """Find the plans that fit and that no other beats in step time and in memory.

    Arguments and errors are those of `search_equal`; `request.top` is not asked.
    """
    job, space, request = question.job, question.space, question.request
    work = BestShapes(job, question.families, space, None, request.stop)
    work.run(request.progress)
    if not work.known.fits.any():
        raise NoFeasiblePlan(_nothing_fits(question, work))
    front = _in_order(question, work.known.front(work.table, work.best.worst))
    plans = shown(job, front, None, request)
    stopped = how_far(work, question.listed)
    unknown = _unknown(work, question.listed)
    optimality = f"{stopped}: front so far{unknown}" if stopped else PROVEN_FRONT
    return _result(question, work, plans, optimality)


def _nothing_fits(question: Question, work: BestShapes) -> str:
    """Why there is no result: out of time, idle too long, or too large by how much."""
    job, space = question.job, question.space
    stopped = how_far(work, question.listed)
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
    nearest = work.nearest()
    return nearest_miss_message(capped(job, space), work.table.plan(nearest), space.memory_margin)


def _result(question: Question, work: BestShapes, plans: Shown, optimality: str) -> SearchResult:
    space, listed = question.space, question.listed
    return SearchResult(
        plans=plans.plans,
        faster_tight=plans.faster_tight,
        counts=_counts(space, listed, work),
        illegal_reasons=listed.reasons,
        optimality=optimality + plans.cut + (ORDERS if AUTO in (space.schedule or ()) else ""),
        left_out=left_out(question.job, space),
        space=space,
        seconds=time.perf_counter() - question.begin,
        limits=(work.known.usable,),
    )


def _counts(space: PlanSpace, listed: Enumeration, work: BestShapes) -> dict[str, int]:
    """What became of all plans."""
    known = work.known
    return {
        "enumerated": listed.enumerated,
        "illegal": listed.illegal,
        "out_of_memory": work.too_large,
        "tight": int(known.tight.sum()),
        "slower": work.slower,
        **({"idle": int(known.idle.sum())} if space.max_bubble is not None else {}),
        "evaluated": int(known.fits.sum()),
    }


def how_far(work: BestShapes, listed: Enumeration) -> str:
    """Why a search stopped and after how much; empty where all is done."""
    if not (work.stopped or listed.unlisted):
        return ""
    share = min(100.0 * work.decided / work.unseen.plans, 99.0)  # it is never done
    which = "legal plans that were listed" if listed.unlisted else "legal plans"
    return f"{work.stop.reason or TIME_IS_UP} after {share:.0f} % of the {which}"


def _unknown(work: BestShapes, listed: Enumeration) -> str:
    """Words for the plans of which nothing is known; empty where all have bounds."""
    unbounded = work.unseen.unbounded
    return unknown_words([listed.unlisted, f"{unbounded:,} have no bound" if unbounded else ""])
