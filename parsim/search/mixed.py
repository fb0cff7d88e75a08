"""Search on a mixed cluster: plans and their placements, best first under lower bounds.

    1  every legal plan with equal parts, as on equal nodes (`space.py`), with a bound that holds
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

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.stages import even_cut
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.search.candidates import ROUNDING, Candidate, Candidates
from parsim.search.placements import Speeds
from parsim.search.relax import nearest_miss_message
from parsim.search.result import Progress, Ranked, SearchResult
from parsim.search.space import Enumeration
from parsim.sim.interval import Interval
from parsim.sim.mixed import evaluate_mixed
from parsim.sim.mixed_prediction import mean_peak, mixed_interval, standings
from parsim.sim.slots import Slots

Array = NDArray[np.float64]


def search_mixed(
    job: Job,
    space: PlanSpace,
    listed: Enumeration,
    table: PlanTable,
    top: int,
    progress: Progress | None,
    time_limit: float | None,
    begin: float,
) -> SearchResult:
    """Find the best placed plans of a space on a mixed cluster, as `search` asks.

    Args:
        job: model, cluster, software.
        space: allowed values; the batch and what all plans share.
        listed: what the space holds.
        table: its legal plans.
        top: how many plans to return.
        progress: called with (plans done, plans in all).
        time_limit: stop after so many seconds from `begin` and return the best so far.
        begin: `time.perf_counter` when the search began.

    Raises:
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    work = Candidates(job, space, table)
    limit = np.inf if time_limit is None else begin + time_limit
    ran = _best_first(work, top, limit, progress)
    if not ran.best:
        raise NoFeasiblePlan(_nothing_fits(work, ran))
    refined = [] if ran.stopped else _refined(work, ran.best[0])
    ranked = sorted([*ran.best, *refined], key=_rank)[:top]
    return SearchResult(
        plans=_ranked(job, ranked),
        counts={
            "enumerated": listed.enumerated,
            "illegal": listed.illegal,
            "placed": ran.placed,
            "out_of_memory": ran.too_large,
            "evaluated": ran.evaluated,
        },
        illegal_reasons=listed.reasons,
        optimality=_optimality(ran),
        seconds=time.perf_counter() - begin,
    )


@dataclass(slots=True)
class _Run:
    """How far a search went: the best so far, fastest first, and what happened to the others."""

    best: list[Candidate] = field(default_factory=list)
    nearest: Candidate | None = None
    placed: int = 0
    too_large: int = 0
    evaluated: int = 0
    stopped: str = ""


CHUNK = 32
"""Plans that are placed at once, so that their bytes are counted together."""


def _rank(one: Candidate) -> tuple[float, float]:
    return (one.step, one.peak)


def _best_first(work: Candidates, top: int, limit: float, progress: Progress | None) -> _Run:
    """The `top` fastest placements; plans are placed when their bound is the least of all."""
    ran, bounds = _Run(), work.bounds()
    queue: list[tuple[float, int, Candidate]] = []
    waiting = np.argsort(bounds, kind="stable").tolist()[::-1]
    number = 0
    try:
        while waiting or queue:
            least = float(bounds[waiting[-1]]) if waiting else np.inf
            worst = ran.best[-1].step if len(ran.best) == top else np.inf
            if min(least, queue[0][0] if queue else np.inf) >= worst:
                break
            if not queue or least <= queue[0][0]:
                rows = [waiting.pop() for _ in range(min(CHUNK, len(waiting)))]
                for one in _noted(ran, work.placed(rows)):
                    number += 1
                    heapq.heappush(queue, (one.bound, number, one))
            else:
                one = heapq.heappop(queue)[2]
                work.run(one)
                ran.evaluated += 1
                ran.best = sorted([*ran.best, one], key=_rank)[:top]
            if progress:
                progress(len(bounds) - len(waiting), len(bounds))
            if time.perf_counter() > limit and (ran.best or not queue):
                ran.stopped = "stopped by time limit"
                break
    except KeyboardInterrupt:
        ran.stopped = "interrupted"
    return ran


def _noted(ran: _Run, found: list[Candidate]) -> list[Candidate]:
    """Those that fit; the others are counted."""
    fitting = [one for one in found if one.fits]
    ran.placed += len(found)
    ran.too_large += len(found) - len(fitting)
    known = [ran.nearest] if ran.nearest else []
    ran.nearest = min([*known, *found], key=lambda one: one.peak, default=None)
    return fitting


def _nothing_fits(work: Candidates, ran: _Run) -> str:
    if ran.stopped:
        return (
            f"{ran.stopped} after {ran.placed:,} placed plans, and none of those was priced; give "
            f"it more time, or a smaller space"
        )
    if ran.nearest is None:
        raise RuntimeError("no plan was placed")
    return nearest_miss_message(work.job, ran.nearest.plan, work.space.memory_margin)


def _refined(work: Candidates, best: Candidate) -> list[Candidate]:
    """Plans faster than the best by single moves, the fastest last."""
    found: list[Candidate] = []
    speeds = Speeds.of(work.layers, best.row)
    while True:
        near = [
            work.candidate(plan, best.row, speeds, Slots.of(work.job.cluster, plan))
            for plan in _moves(work.job, best.plan)
        ]
        work.weigh(near)
        for one in near:
            if one.fits and one.bound < best.step:
                work.run(one)
        faster = min(near, key=lambda one: one.step, default=best)
        if faster.step >= best.step * (1.0 - ROUNDING):
            return found
        found.append(faster)
        best = faster


def _moves(job: Job, plan: Plan) -> Iterator[Plan]:
    """One layer from a stage to another, or one unit of micro-batches between two replicas."""
    cut = list(plan.stage_layers or even_cut(job.model.num_layers, plan.num_stages))
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


def _ranked(job: Job, best: list[Candidate]) -> tuple[Ranked, ...]:
    intervals = [_interval(job, one) for one in best]
    least, highest = best[0].step, intervals[0].high
    return tuple(
        _entry(job, one, interval, tied=interval.low <= least and one.step <= highest)
        for one, interval in zip(best, intervals, strict=True)
    )


def _interval(job: Job, one: Candidate) -> Interval:
    found = evaluate_mixed(job, one.plan)
    return mixed_interval(standings(job, one.plan, found), one.step)


def _entry(job: Job, one: Candidate, interval: Interval, *, tied: bool) -> Ranked:
    plan, step = one.plan, one.step
    flops = job.model.step_flops(plan.global_batch_size)
    return Ranked(
        plan=plan,
        step_time=step,
        interval=interval,
        tied=tied,
        tokens_per_second=plan.global_batch_size * job.model.seq_len / step,
        mfu=flops / (step * mean_peak(job, plan) * plan.world_size),
        bubble_fraction=one.bubble,
        peak_allocated=one.peak,
    )


def _optimality(ran: _Run) -> str:
    if ran.stopped:
        return f"{ran.stopped} after {ran.evaluated:,} priced placements: best so far"
    return (
        "proven: no other placement (order of nodes, pp outside or inside of dp, layers and "
        "micro-batches in equal parts, by speed or by memory) is faster, by its bound or by its "
        "step (tier B); then single moves of layers and micro-batches from the best"
    )
