"""Search: evaluate every legal plan of a space and rank what fits."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.cost.step import step_costs
from parsim.errors import NoFeasiblePlan
from parsim.plan import PlanSpace, PlanTable
from parsim.schedule import V_SHAPED, build_schedule
from parsim.search.mixed import search_mixed
from parsim.search.relax import nearest_miss_message
from parsim.search.result import Progress, Ranked, SearchResult
from parsim.search.space import check_space, enumerate_plans, nothing_legal
from parsim.sim.evaluate import bubble_fraction, evaluate, pipeline, shapes
from parsim.sim.graph import compact_graph
from parsim.sim.interval import Interval, standing, step_interval
from parsim.sim.own_costs import own_costs
from parsim.sim.peaks import least_peak, peak_memory
from parsim.sim.simulate import breakdown
from parsim.sim.tail import tail

Array = NDArray[np.float64]

__all__ = ("Progress", "Ranked", "SearchResult", "search")


@dataclass(slots=True)
class _Found:
    """Columns of the evaluation; infinite time where a plan does not fit."""

    step: Array
    bubble: Array
    peak: Array
    seen: NDArray[np.bool_]


def search(
    job: Job,
    space: PlanSpace,
    *,
    top: int = 10,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> SearchResult:
    """Evaluate every legal plan with tier B and return the best ones.

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
        raise NoFeasiblePlan(nothing_legal(listed))
    if job.mixed:
        return search_mixed(job, space, listed, listed.table, top, progress, time_limit, begin)
    capacity = job.device.usable_memory * (1.0 - space.memory_margin)
    found, stopped = _evaluate_all(job, listed.table, capacity, progress, time_limit, begin)
    fits = np.isfinite(found.step)
    if not fits.any() and stopped is not None:
        raise NoFeasiblePlan(_nothing_yet(stopped, found))
    if not fits.any():
        best = int(np.argmin(np.where(found.seen, found.peak, np.inf)))
        nearest = listed.table.plan(best)
        raise NoFeasiblePlan(nearest_miss_message(job, nearest, space.memory_margin))
    order = np.lexsort((found.peak, found.step))[: min(top, int(fits.sum()))]
    evaluated = int(fits.sum())
    return SearchResult(
        plans=_ranked(job, listed.table, found, order),
        counts={
            "enumerated": listed.enumerated,
            "illegal": listed.illegal,
            "out_of_memory": int((found.seen & ~fits).sum()),
            "evaluated": evaluated,
        },
        illegal_reasons=listed.reasons,
        optimality=_optimality(stopped, found),
        seconds=time.perf_counter() - begin,
    )


def _optimality(stopped: str | None, found: _Found) -> str:
    if stopped is None:
        return "exhaustive: every legal plan of the space was evaluated (tier B)"
    return f"{stopped} after {_share(found)} of the legal plans: best so far"


def _nothing_yet(stopped: str, found: _Found) -> str:
    return (
        f"{stopped} after {_share(found)} of the legal plans, and none of those fits the devices; "
        f"give it more time, or a smaller space"
    )


def _share(found: _Found) -> str:
    return f"{100.0 * float(found.seen.mean()):.0f} %"


def _evaluate_all(
    job: Job,
    table: PlanTable,
    capacity: float,
    progress: Progress | None,
    time_limit: float | None,
    begin: float,
) -> tuple[_Found, str | None]:
    """Fill the result columns shape by shape; Ctrl-C and the time limit keep what is done."""
    rows = len(table)
    found = _Found(
        step=np.full(rows, np.inf),
        bubble=np.full(rows, np.nan),
        peak=np.full(rows, np.nan),
        seen=np.zeros(rows, dtype=bool),
    )
    layers = LayerTable.of(job, table)
    done = 0
    try:
        for shape, members in shapes(table):
            _evaluate_shape(job, table, layers, shape, members, capacity, found)
            found.seen[members] = True
            done += len(members)
            if progress:
                progress(done, rows)
            if time_limit is not None and time.perf_counter() - begin > time_limit:
                return found, "stopped by time limit" if done < rows else None
    except KeyboardInterrupt:
        return found, "interrupted"
    return found, None


def _evaluate_shape(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    shape: tuple[str, int, int, int],
    members: NDArray[np.int64],
    capacity: float,
    found: _Found,
) -> None:
    """Memory first; only plans that fit run through the schedule."""
    name, pp, microbatches, v = shape
    group, known = table.take(members), layers.take(members)
    costs = step_costs(job, group, known)
    found.peak[members] = least = least_peak(job, group, known, costs).max(axis=0)
    own = table.common.actions
    looped = own is None and name not in V_SHAPED  # the bound is for stage s on rank s % pp
    if looped and (least > capacity).all():
        return
    schedule = build_schedule(
        name,
        pp=pp,
        num_microbatches=microbatches,
        v=v,
        actions=own,
        times=table.common.action_times,
    )
    costs = own_costs(job, group, known, costs, schedule)
    peak = peak_memory(job, group, known, costs, schedule).peak.max(axis=0)
    found.peak[members] = peak
    fits = np.flatnonzero(peak <= capacity)
    if not len(fits):
        return
    kept, graph = costs.rows(fits), compact_graph(schedule)
    result = pipeline(graph, kept)
    found.step[members[fits]] = tail(graph, kept, result).step_time
    found.bubble[members[fits]] = bubble_fraction(graph, kept, result)


def _ranked(
    job: Job, table: PlanTable, found: _Found, order: NDArray[np.int64]
) -> tuple[Ranked, ...]:
    """The rows of an order, best first."""
    rows = [int(row) for row in order]
    intervals = [_interval(job, table.take(order[i : i + 1])) for i in range(len(rows))]
    least, highest = float(found.step[rows[0]]), intervals[0].high
    return tuple(
        _entry(job, table, found, row, interval,
               tied=interval.low <= least and float(found.step[row]) <= highest)
        for row, interval in zip(rows, intervals, strict=True)
    )  # fmt: skip


def _interval(job: Job, table: PlanTable) -> Interval:
    """The interval of one plan, a table of one row."""
    ((shape, _),) = shapes(table)
    layers = LayerTable.of(job, table)
    found = evaluate(job, table, shape, layers)
    peak = float(found.memory.peak.max())
    where = standing(job, table.plan(0), layers, breakdown(found), peak)
    return step_interval(where, float(found.step_time[0]))


def _entry(
    job: Job, table: PlanTable, found: _Found, row: int, interval: Interval, *, tied: bool
) -> Ranked:
    plan, step = table.plan(row), float(found.step[row])
    peak = job.device.peak(table.precision.products)
    flops = job.model.step_flops(plan.global_batch_size)
    return Ranked(
        plan=plan,
        step_time=step,
        interval=interval,
        tied=tied,
        tokens_per_second=plan.global_batch_size * job.model.seq_len / step,
        mfu=flops / (step * peak * plan.world_size),
        bubble_fraction=float(found.bubble[row]),
        peak_allocated=float(found.peak[row]),
    )
