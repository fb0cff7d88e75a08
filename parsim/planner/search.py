"""Search: the best of all legal plans of a space, and what became of the others."""

from __future__ import annotations

import time

from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.errors import InputError, NoFeasiblePlan
from parsim.plan import PlanSpace
from parsim.plan.names import AUTO
from parsim.planner.equal.best_plans import front_equal, search_equal
from parsim.planner.question import Question
from parsim.planner.ranked import Ranked
from parsim.planner.result import Progress, Request, SearchResult, Sighted
from parsim.planner.space import check_space, enumerate_plans, nothing_legal
from parsim.planner.stop import Stop
from parsim.training_run import TrainingGoal

__all__ = ("Progress", "Ranked", "SearchResult", "search", "search_front")

WHATEVER = TrainingGoal()
"""No whole run is asked for."""


def search(
    job: Job,
    space: PlanSpace,
    *,
    top: int = 10,
    progress: Progress | None = None,
    time_limit: float | None = None,
    goal: TrainingGoal = WHATEVER,
    sighted: Sighted | None = None,
    jitter: Jitter | None = None,
) -> SearchResult:
    """Find the plans of a space that are the fastest by tier B and fit.

    Args:
        job: model, cluster, software.
        space: allowed values; the batch and what all plans share.
        top: how many plans to return.
        progress: called with (plans done, plans in all).
        time_limit: stop after so many seconds and return the best so far: what is listed, bounded
            and simulated by then. Half a second more is spent on a plan that fits where none is
            known yet, and on describing plans.
        goal: how long one trains at what price, for the whole run of each plan.
        sighted: called with the best step so far and its gap to the best possible; on nodes of one
            kind.
        jitter: how workers differ, for the space's strategies in which it matters who comes first;
            slow ranks are left aside. None: the usual spreads.

    Raises:
        InputError: unequal stages or schedule: auto on nodes of several kinds.
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    begin = time.perf_counter()
    stop = _stop(begin, time_limit)
    request = Request(top=top, progress=progress, stop=stop, goal=goal, sighted=sighted)
    question = _question(job, space, request, begin)
    if job.mixed:
        _check_mixed(space)
        from parsim.planner.mixed.best_first import search_mixed  # few clusters are mixed

        result = search_mixed(question)
    else:
        result = search_equal(question)
    if not space.strategies:
        return result
    from parsim.planner.strategies import with_strategies  # programs of their own: few ask for them

    families = question.families
    return with_strategies(
        job, space, families, result, top=top, goal=goal, until=stop.until, jitter=jitter
    )


def search_front(
    job: Job,
    space: PlanSpace,
    *,
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
    if job.mixed:
        raise InputError("the front of time and memory needs nodes of one kind; use --top instead")
    if space.unequal_stages:
        raise InputError("search.unequal_stages is for the fastest plans, not for a front of them")
    if space.strategies:
        raise InputError("search.strategies: the front of time and memory has none; leave it away")
    request = Request(top=0, progress=None, stop=_stop(begin, time_limit), goal=goal)
    return front_equal(_question(job, space, request, begin))


def _stop(begin: float, time_limit: float | None) -> Stop:
    """When the search ends at the latest."""
    return Stop() if time_limit is None else Stop(begin + time_limit)


def _check_mixed(space: PlanSpace) -> None:
    """Refuse what needs nodes of one kind."""
    if space.unequal_stages:
        raise InputError("search.unequal_stages needs nodes of one kind; leave it away")
    if AUTO in (space.schedule or ()):
        raise InputError(f"search.schedule: {AUTO} needs nodes of one kind; name others")


def _question(job: Job, space: PlanSpace, request: Request, begin: float) -> Question:
    """What is asked of every legal plan of the space, of which there is at least one."""
    check_space(job, space)
    listed = enumerate_plans(job, space, request.stop)
    if listed.families is None:
        raise NoFeasiblePlan(nothing_legal(job, space, listed))
    return Question(
        job=job, space=space, listed=listed, families=listed.families, request=request, begin=begin
    )
