"""Search: evaluate every legal plan of a space and rank what fits."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.job import Job
from parsim.cost.step.stages import LayerTable
from parsim.cost.step.step import step_costs
from parsim.errors import NoFeasiblePlan
from parsim.plan import PlanSpace, PlanTable
from parsim.planner.best_first import search_mixed
from parsim.planner.nearest_miss import nearest_miss_message
from parsim.planner.result import EvaluatedPlan, Progress, Ranked, SearchResult, ranked_plans
from parsim.planner.space import check_space, enumerate_plans, nothing_legal
from parsim.schedule import V_SHAPED, build_schedule
from parsim.sim.memory.eager_peaks import least_peak, peak_memory
from parsim.sim.recurrence.evaluate import bubble_fraction, pipeline
from parsim.sim.recurrence.shapes import shapes
from parsim.sim.recurrence.step_end import step_end
from parsim.sim.step.compiled_schedule import compile_repeated
from parsim.sim.step.schedule_costs import on_schedule

__all__ = ("Progress", "Ranked", "SearchResult", "search")

EXHAUSTIVE = "exhaustive: every legal plan of the space was evaluated (tier B)"


@dataclass(slots=True)
class _Columns:
    """What is known of each plan of a table; infinite time where it does not fit."""

    step: Array
    bubble: Array
    peak: Array
    seen: Flags

    def plan(self, table: PlanTable, row: int) -> EvaluatedPlan:
        """The plan of a row with its numbers."""
        step, bubble, peak = self.step[row], self.bubble[row], self.peak[row]
        return EvaluatedPlan(table.plan(row), float(step), float(bubble), float(peak))


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
    columns, stopped = _evaluate_all(job, listed.table, capacity, progress, time_limit, begin)
    fits = np.isfinite(columns.step)
    if not fits.any() and stopped is not None:
        raise NoFeasiblePlan(
            f"{stopped}, and none of those fits the devices; give it more time, or a smaller space"
        )
    if not fits.any():
        best = int(np.argmin(np.where(columns.seen, columns.peak, np.inf)))
        nearest = listed.table.plan(best)
        raise NoFeasiblePlan(nearest_miss_message(job, nearest, space.memory_margin))
    evaluated = int(fits.sum())
    order = np.lexsort((columns.peak, columns.step))[: min(top, evaluated)]
    return SearchResult(
        plans=ranked_plans(job, [columns.plan(listed.table, row) for row in order.tolist()]),
        counts={
            "enumerated": listed.enumerated,
            "illegal": listed.illegal,
            "out_of_memory": int((columns.seen & ~fits).sum()),
            "evaluated": evaluated,
        },
        illegal_reasons=listed.reasons,
        optimality=EXHAUSTIVE if stopped is None else f"{stopped}: best so far",
        seconds=time.perf_counter() - begin,
        limits=(capacity,),
    )


def _evaluate_all(
    job: Job,
    table: PlanTable,
    capacity: float,
    progress: Progress | None,
    time_limit: float | None,
    begin: float,
) -> tuple[_Columns, str | None]:
    """Fill the result columns shape by shape; Ctrl-C and the time limit keep what is done.

    Beside them why it stopped and after how much, None where all is done.
    """
    rows = len(table)
    columns = _Columns(
        step=np.full(rows, np.inf),
        bubble=np.full(rows, np.nan),
        peak=np.full(rows, np.nan),
        seen=np.zeros(rows, dtype=bool),
    )
    layers = LayerTable.of(job, table)
    done, stopped = 0, None
    try:
        for shape, chosen in shapes(table):
            _evaluate_shape(job, table, layers, shape, chosen, capacity, columns)
            columns.seen[chosen] = True
            done += len(chosen)
            if progress:
                progress(done, rows)
            late = time_limit is not None and time.perf_counter() - begin > time_limit
            if late and done < rows:
                stopped = "stopped by time limit"
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    if stopped is not None:
        share = 100.0 * float(columns.seen.mean())
        stopped = f"{stopped} after {share:.0f} % of the legal plans"
    return columns, stopped


def _evaluate_shape(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    shape: tuple[str, int, int, int],
    chosen: Index,
    capacity: float,
    columns: _Columns,
) -> None:
    """Memory first; only plans that fit run through the schedule."""
    name, pp, microbatches, v = shape
    plans, known = table.take(chosen), layers.take(chosen)
    costs = step_costs(job, plans, known)
    columns.peak[chosen] = least = least_peak(job, plans, known, costs).max(axis=0)
    actions = table.common.actions
    looped = actions is None and name not in V_SHAPED  # the bound is for stage s on rank s % pp
    if looped and (least > capacity).all():
        return
    schedule = build_schedule(
        name,
        pp=pp,
        num_microbatches=microbatches,
        v=v,
        actions=actions,
        times=table.common.action_times,
    )
    costs = on_schedule(job, plans, known, costs, schedule)
    peak = peak_memory(job, plans, known, costs, schedule).peak.max(axis=0)
    columns.peak[chosen] = peak
    fits = np.flatnonzero(peak <= capacity)
    if not len(fits):
        return
    kept, graph = costs.take(fits), compile_repeated(schedule)
    result = pipeline(graph, kept)
    columns.step[chosen[fits]] = step_end(graph, kept, result).step_time
    columns.bubble[chosen[fits]] = bubble_fraction(graph, kept, result)
