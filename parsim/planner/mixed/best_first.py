"""Search on a mixed cluster: plans and their placements, best first under lower bounds.

    1  every legal plan with equal parts, as on equal nodes (`space/`), with a bound that holds
       for each of its placements
    2  plan by plan, that with the least bound first: its placements, which are order of nodes, of
       axes, cut by speed or memory, batch by speed (`placements.py`), their bytes, and a bound for
       each that fits
    3  the exact step (tier B) of the placement with the least bound, until no bound of a placement
       or a plan is below the slowest of the best
    4  single moves of a layer or of micro-batches from the best, as long as one is faster

so that 1 to 3 give the best of all placements without pricing most of them.
"""

from __future__ import annotations

import time
from itertools import islice

import numpy as np

from parsim.errors import NoFeasiblePlan
from parsim.planner.bounds import ROUNDING
from parsim.planner.limits import keeps_busy
from parsim.planner.mixed.by_bounds import CHUNK, best_by_bounds, rank
from parsim.planner.mixed.candidates import Candidate, Candidates
from parsim.planner.mixed.moves import single_moves
from parsim.planner.mixed.orders import untried
from parsim.planner.mixed.progress import Run
from parsim.planner.nearest_miss import nearest_miss_message
from parsim.planner.question import Question
from parsim.planner.result import SearchResult, Shown, gap_words, shown, unknown_words
from parsim.planner.space import Enumeration
from parsim.planner.space.left_out import ALL_BUT, left_out
from parsim.planner.stop import TIME_IS_UP
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.step.replica_classes import DevicesOfRanks


def search_mixed(question: Question) -> SearchResult:
    """Find the best placed plans of a space on a mixed cluster, as `search` asks.

    Raises:
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    job, space, request = question.job, question.space, question.request
    work, top = Candidates(job, space, question.table), request.top
    until = request.stop.until
    ran = best_by_bounds(work, top, until, request.progress)
    if ran.best and not ran.stopped:
        _refine(work, ran, top, until)
    ranked = ran.best
    tight = [] if ran.stopped and ranked else _tight(work, ran, ranked, top, until)
    if not ranked and not tight:
        raise NoFeasiblePlan(_nothing_fits(work, ran))
    plans = [candidate.evaluated for candidate in ranked or tight]
    first = tight[0].evaluated if ranked and tight else None
    return _result(question, work, ran, shown(job, plans, first, request))


def _result(question: Question, work: Candidates, ran: Run, plans: Shown) -> SearchResult:
    """The plans with what became of the others, and what is proven of them."""
    job, listed = question.job, question.listed
    best, faster_tight, cut = plans
    some = untried(job.cluster)
    orders = {"node_order": f"{ALL_BUT}{some}"} if some else {}
    return SearchResult(
        plans=best,
        faster_tight=faster_tight,
        counts=_counts(ran, question),
        illegal_reasons=listed.reasons,
        optimality=_optimality(ran, listed, proven(some)) + cut,
        left_out=left_out(job, question.space) | orders,
        space=question.space,
        seconds=time.perf_counter() - question.begin,
        limits=tuple(work.usable.tolist()),
    )


def _counts(ran: Run, question: Question) -> dict[str, int]:
    """How many plans and placements there were, and what became of them."""
    limited = question.space.max_bubble is not None
    return {
        "enumerated": question.listed.enumerated,
        "illegal": question.listed.illegal,
        "placed": ran.placed,
        "out_of_memory": ran.too_large,
        "tight": len(ran.tight),
        "slower": ran.slower,
        **({"idle": ran.idle} if limited else {}),
        "evaluated": ran.evaluated - ran.idle,
    }


def _optimality(ran: Run, listed: Enumeration, proof: str) -> str:
    """What is proven of the best, or how far the search came."""
    if ran.placements_done and not listed.unlisted:
        rest = ran.stopped or "single moves of layers and micro-batches from the best"
        return f"{proof}; then {rest}"
    far = f"{ran.stopped or TIME_IS_UP} after {ran.evaluated:,} priced placements: best so far"
    return far + (unknown_words([listed.unlisted]) or gap_words(ran.gap))


def proven(some_orders: str) -> str:
    """What is proven of the best placement, of all orders of nodes or of some."""
    return (
        f"proven: no other placement that fits ({some_orders or 'order of nodes'}, pp outside or "
        f"inside of dp, layers and micro-batches in equal parts, by speed or by memory) is "
        f"faster, by its bound or by its step (tier B)"
    )


def _tight(
    work: Candidates, ran: Run, ranked: list[Candidate], top: int, until: float
) -> list[Candidate]:
    """The fastest tight placements: one that is faster than the best, or the best where none fits.

    Only placements that a better bound brought up are among them, as among those that fit.
    """
    below, count = (ranked[0].step, 1) if ranked else (np.inf, top)
    best: list[Candidate] = []
    for candidate in sorted(ran.tight, key=lambda candidate: candidate.bound):
        if candidate.bound >= (best[-1].step if len(best) == count else below):
            break
        if (best or ranked) and ran.late(until):
            break
        work.run(candidate)
        if candidate.step < below and keeps_busy(candidate.bubble, work.space):
            best = sorted([*best, candidate], key=rank)[:count]
    return best


def _nothing_fits(work: Candidates, ran: Run) -> str:
    if ran.stopped:
        return (
            f"{ran.stopped} after {ran.placed:,} placed plans, and none of those was priced; give "
            f"it more time, or a smaller space"
        )
    if ran.idle:
        return (
            f"no placement that fits idles less than max_bubble={work.space.max_bubble:g} of the "
            f"pipeline phase; the least of those looked at is {ran.least_idle:.3g}: allow as much"
        )
    if ran.nearest is None:
        raise RuntimeError("no plan was placed")
    return nearest_miss_message(work.job, ran.nearest.plan, work.space.memory_margin)


def _refine(work: Candidates, ran: Run, top: int, until: float) -> None:
    """Put plans that single moves make faster than the best before it, until none is or it is late.

    What was found when time is up or the user interrupts is kept.
    """
    try:
        while not ran.stopped:
            best = ran.best[0]
            faster = _fastest_move(work, ran, until)
            if faster.step >= best.step * (1.0 - ROUNDING):
                return
            ran.best = [faster, *ran.best][:top]
    except KeyboardInterrupt:
        ran.stopped = "interrupted"


def _fastest_move(work: Candidates, ran: Run, until: float) -> Candidate:
    """The fastest plan that fits of the best and of those a single move away from it."""
    fastest = best = ran.best[0]
    speeds, cluster = work.speeds(best.row), work.job.cluster
    moves = single_moves(work.job, best.plan)
    while some := list(islice(moves, CHUNK)):
        near = [
            work.candidate(plan, best.row, speeds, DevicesOfRanks.of(cluster, plan))
            for plan in some
        ]
        work.weigh(near)
        for candidate in near:
            if candidate.fit is not Fit.FITS or candidate.bound >= fastest.step:
                continue
            if ran.late(until):
                return fastest
            work.run(candidate)
            if keeps_busy(candidate.bubble, work.space):
                fastest = min(fastest, candidate, key=lambda candidate: candidate.step)
    return fastest
