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
from parsim.planner.result import EvaluatedPlan, Progress, Ranked, SearchResult, shown
from parsim.planner.space import check_space, enumerate_plans, nothing_legal
from parsim.schedule import V_SHAPED, build_schedule
from parsim.sim.confidence.memory_fit import Fit, has_room, margin_shares
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
    """What is known of each plan of a table; infinite time where it does not fit.

    `usable` are the bytes of a device beside its context, `margin` is the share of them that a plan
    must leave free, and `roomy` says which do: the others with a time are tight.
    """

    usable: float
    margin: Array
    step: Array
    bubble: Array
    peak: Array
    seen: Flags
    roomy: Flags

    @classmethod
    def unseen(cls, usable: float, margin: Array) -> _Columns:
        """Columns of which nothing but the margins is known yet."""
        rows = len(margin)
        return cls(
            usable=usable,
            margin=margin,
            step=np.full(rows, np.inf),
            bubble=np.full(rows, np.nan),
            peak=np.full(rows, np.nan),
            seen=np.zeros(rows, dtype=bool),
            roomy=np.zeros(rows, dtype=bool),
        )

    @property
    def holds(self) -> Flags:
        """Which plans fit or are tight."""
        return np.isfinite(self.step)

    def plan(self, table: PlanTable, row: int) -> EvaluatedPlan:
        """The plan of a row, which fits or is tight, with its numbers."""
        return EvaluatedPlan(
            plan=table.plan(row),
            step_time=float(self.step[row]),
            bubble_fraction=float(self.bubble[row]),
            peak_allocated=float(self.peak[row]),
            fit=Fit.FITS if self.roomy[row] else Fit.TIGHT,
            margin=float(self.margin[row]),
        )

    def fastest(self, table: PlanTable, among: Flags, top: int) -> list[EvaluatedPlan]:
        """The fastest plans among some, at equal times those with the lowest peak first."""
        order = np.lexsort((self.peak, np.where(among, self.step, np.inf)))
        return [self.plan(table, row) for row in order[: min(top, int(among.sum()))].tolist()]


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
    margin = margin_shares(job, listed.table, space.memory_margin)
    columns = _Columns.unseen(job.device.usable_memory, margin)
    stopped = _evaluate_all(job, listed.table, columns, progress, time_limit, begin)
    holds, roomy = columns.holds, columns.roomy
    if not holds.any() and stopped is not None:
        raise NoFeasiblePlan(
            f"{stopped}, and none of those fits the devices; give it more time, or a smaller space"
        )
    if not holds.any():
        nearest = listed.table.plan(int(np.argmin(np.where(columns.seen, columns.peak, np.inf))))
        raise NoFeasiblePlan(nearest_miss_message(job, nearest, space.memory_margin))
    best = columns.fastest(listed.table, roomy if roomy.any() else holds, top)
    tight = columns.fastest(listed.table, holds & ~roomy, 1)
    plans, faster_tight = shown(job, best, tight[0] if tight and roomy.any() else None)
    return SearchResult(
        plans=plans,
        faster_tight=faster_tight,
        counts={
            "enumerated": listed.enumerated,
            "illegal": listed.illegal,
            "out_of_memory": int((columns.seen & ~holds).sum()),
            "tight": int((holds & ~roomy).sum()),
            "evaluated": int(roomy.sum()),
        },
        illegal_reasons=listed.reasons,
        optimality=EXHAUSTIVE if stopped is None else f"{stopped}: best so far",
        seconds=time.perf_counter() - begin,
        limits=(columns.usable,),
    )


def _evaluate_all(
    job: Job,
    table: PlanTable,
    columns: _Columns,
    progress: Progress | None,
    time_limit: float | None,
    begin: float,
) -> str | None:
    """Fill the result columns shape by shape; Ctrl-C and the time limit keep what is done.

    Returns why it stopped and after how much, None where all is done.
    """
    rows = len(table)
    layers = LayerTable.of(job, table)
    done, stopped = 0, None
    try:
        for shape, chosen in shapes(table):
            _evaluate_shape(job, table, layers, shape, chosen, columns)
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
    return stopped


def _evaluate_shape(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    shape: tuple[str, int, int, int],
    chosen: Index,
    columns: _Columns,
) -> None:
    """Memory first; only plans that fit run through the schedule."""
    name, pp, microbatches, v = shape
    plans, known = table.take(chosen), layers.take(chosen)
    costs = step_costs(job, plans, known)
    columns.peak[chosen] = least = least_peak(job, plans, known, costs).max(axis=0)
    actions = table.common.actions
    looped = actions is None and name not in V_SHAPED  # the bound is for stage s on rank s % pp
    if looped and (least > columns.usable).all():
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
    holds = np.flatnonzero(peak <= columns.usable)
    if not len(holds):
        return
    kept, graph = costs.take(holds), compile_repeated(schedule)
    result = pipeline(graph, kept)
    rows, room = chosen[holds], columns.margin[chosen[holds]]
    columns.roomy[rows] = has_room(job.software, peak[holds], columns.usable, room)
    columns.step[rows] = step_end(graph, kept, result).step_time
    columns.bubble[rows] = bubble_fraction(graph, kept, result)
