"""Search on a mixed cluster: plans and their placements, best first under a lower bound.

    1  every legal plan with equal parts, as on equal nodes (`space.py`)
    2  its placements: order of nodes, of axes, cut and batch by speed (`placements.py`)
    3  bytes, of all plans of one shape and cut at once; what does not fit leaves
    4  a bound for each, and in its order the exact step (tier B), until no bound is below the worst
       of the best
    5  single moves of a layer or of micro-batches from the best plan, as long as one is faster

so that 1 to 4 give the best of all placements without pricing most of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, even_cut
from parsim.cost.step import step_costs
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.plan.rules import violation
from parsim.schedule import build_schedule
from parsim.search.placements import Speeds, lower_bound, placements
from parsim.search.relax import nearest_miss_message
from parsim.search.result import Progress, Ranked, SearchResult
from parsim.search.space import check_space, enumerate_plans, nothing_legal
from parsim.sim.mixed import evaluate_mixed
from parsim.sim.mixed_costs import members
from parsim.sim.mixed_prediction import bubble_fraction, mean_peak, mixed_interval
from parsim.sim.peaks import peak_memory
from parsim.sim.slots import Slots

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""Share by which a bound may exceed a step by rounding alone."""


@dataclass(slots=True)
class _Candidate:
    """A placed plan: which row of the table it is of, what it is known to need, its step."""

    plan: Plan
    row: int
    slots: Slots
    peak: float = 0.0
    fits: bool = False
    bound: float = 0.0
    step: float = np.inf
    bubble: float = 0.0


class _Search:
    """One search: candidates, and what prices them."""

    def __init__(self, job: Job, space: PlanSpace, table: PlanTable) -> None:
        self.job, self.space, self.table = job, space, table
        systems = job.cluster.systems
        self.layers = [LayerTable.of(job.on(system), table) for system in systems]
        self.straggler = max(system.straggler for system in systems)
        usable = [system.device.usable_memory for system in systems]
        self.usable = np.array(usable) * (1.0 - space.memory_margin)

    def candidates(self) -> Iterator[_Candidate]:
        """Every placement of every legal plan, with its bound."""
        for row in range(len(self.table)):
            speeds = Speeds.of(self.layers, row)
            for plan in placements(self.table.plan(row), self.job.cluster, self.job.model, speeds):
                if plan.replica_microbatches and violation(plan, self.job.model, self.job.cluster):
                    continue
                yield self.candidate(plan, row, speeds)

    def candidate(self, plan: Plan, row: int, speeds: Speeds) -> _Candidate:
        """One placement with its bound."""
        slots = Slots.of(self.job.cluster, plan)
        found = _Candidate(plan=plan, row=row, slots=slots)
        doublings = max(float(np.log2(plan.world_size / 8.0)), 0.0)
        growth = (1.0 + self.straggler * doublings) * (1.0 - ROUNDING)
        found.bound = lower_bound(plan, self.job.model, speeds, slots) * growth
        return found

    def weigh(self, found: Sequence[_Candidate]) -> None:
        """Count the bytes of candidates, those of one shape and cut together."""
        groups: dict[tuple[object, ...], dict[int, list[_Candidate]]] = {}
        for one in found:
            plan = one.plan
            for count in set(plan.microbatches):
                key = (plan.schedule, plan.pp, count, plan.v, plan.stage_layers)
                groups.setdefault(key, {}).setdefault(one.row, []).append(one)
        for one in found:
            one.fits = True
        for key, rows in groups.items():
            self._weigh(key, rows)

    def _weigh(self, key: tuple[object, ...], rows: dict[int, list[_Candidate]]) -> None:
        numbers = np.array(sorted(rows))
        plan = rows[int(numbers[0])][0].plan
        count = int(str(key[2]))
        group = self.table.take(numbers)
        group = replace(group, common=replace(group.common, stage_layers=plan.stage_layers))
        layers = self.layers[0].take(numbers)
        on = self.job.on(self.job.cluster.systems[0])
        schedule = build_schedule(
            plan.schedule if plan.pp > 1 else "1f1b", pp=plan.pp, num_microbatches=count,
            v=plan.v, actions=plan.actions, times=plan.action_times,
        )  # fmt: skip
        costs = step_costs(on, group, layers)
        peaks = peak_memory(on, group, layers, costs, schedule).peak
        for column, row in enumerate(numbers.tolist()):
            for one in rows[row]:
                self._weighed(one, peaks[:, column], count)

    def _weighed(self, one: _Candidate, peak: Array, count: int) -> None:
        """Whether each rank of the replicas with so many micro-batches fits its devices."""
        kinds = one.slots.kinds[:, one.slots.microbatches == count]
        one.peak = max(one.peak, float(peak.max()))
        for group in members(one.slots.world):
            on_it = (kinds >> group & 1).any(axis=1)
            one.fits = one.fits and bool((peak[on_it] <= self.usable[group]).all())

    def run(self, one: _Candidate) -> None:
        """The exact step of a candidate."""
        layers = [table.take(np.array([one.row])) for table in self.layers]
        found = evaluate_mixed(self.job, one.plan, layers=layers, memory=False)
        one.step, one.bubble = found.step_time, bubble_fraction(found)


def search_mixed(
    job: Job,
    space: PlanSpace,
    *,
    top: int = 10,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> SearchResult:
    """Find the best placed plans of a space on a mixed cluster.

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
    work = _Search(job, space, listed.table)
    every = list(work.candidates())
    work.weigh(every)
    fitting = [one for one in every if one.fits]
    if not fitting:
        nearest = min(every, key=lambda one: one.peak)
        raise NoFeasiblePlan(nearest_miss_message(job, nearest.plan, space.memory_margin))
    limit = np.inf if time_limit is None else begin + time_limit
    best, stopped = _best_first(work, fitting, top, limit, progress)
    refined = [] if stopped else _refined(work, best[0])
    counted = [one for one in fitting if np.isfinite(one.step)]
    ranked = sorted([*best, *refined], key=lambda one: (one.step, one.peak))[:top]
    return SearchResult(
        plans=_ranked(job, ranked),
        counts={
            "enumerated": len(every) + listed.illegal,
            "illegal": listed.illegal,
            "out_of_memory": len(every) - len(fitting),
            "evaluated": len(counted),
            "bounded": len(fitting) - len(counted),
        },
        illegal_reasons=listed.reasons,
        optimality=_optimality(stopped, len(counted), len(fitting)),
        seconds=time.perf_counter() - begin,
    )


def _best_first(
    work: _Search,
    fitting: list[_Candidate],
    top: int,
    limit: float,
    progress: Progress | None,
) -> tuple[list[_Candidate], bool]:
    """The `top` fastest candidates, and whether time ran out before that was sure."""
    queue = sorted(fitting, key=lambda one: one.bound)
    best: list[_Candidate] = []
    try:
        for done, one in enumerate(queue):
            if len(best) == top and one.bound >= best[-1].step:
                break
            work.run(one)
            best = sorted([*best, one], key=lambda x: (x.step, x.peak))[:top]
            if progress:
                progress(done + 1, len(queue))
            if time.perf_counter() > limit:
                return best, True
    except KeyboardInterrupt:
        if not best:
            raise
        return best, True
    return best, False


def _refined(work: _Search, best: _Candidate) -> list[_Candidate]:
    """Plans faster than the best by single moves, the fastest last."""
    found: list[_Candidate] = []
    speeds = Speeds.of(work.layers, best.row)
    while True:
        near = [work.candidate(plan, best.row, speeds) for plan in _moves(work.job, best.plan)]
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
        other = replace(
            plan, replica_microbatches=tuple(moved), num_microbatches=max(moved)
        )
        if violation(other, job.model, job.cluster) is None:
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


def _ranked(job: Job, best: list[_Candidate]) -> tuple[Ranked, ...]:
    intervals = [mixed_interval(job, one.plan, one.step) for one in best]
    least, highest = best[0].step, intervals[0].high
    return tuple(
        _entry(job, one, interval, tied=interval.low <= least and one.step <= highest)
        for one, interval in zip(best, intervals, strict=True)
    )


def _entry(job: Job, one: _Candidate, interval: object, *, tied: bool) -> Ranked:
    plan, step = one.plan, one.step
    flops = job.model.step_flops(plan.global_batch_size)
    return Ranked(
        plan=plan,
        step_time=step,
        interval=interval,  # type: ignore[arg-type]
        tied=tied,
        tokens_per_second=plan.global_batch_size * job.model.seq_len / step,
        mfu=flops / (step * mean_peak(job, plan) * plan.world_size),
        bubble_fraction=one.bubble,
        peak_allocated=one.peak,
    )


def _optimality(stopped: bool, counted: int, fitting: int) -> str:
    if stopped:
        return f"stopped after {counted:,} of {fitting:,} placed plans: best so far"
    return (
        "proven: no other placed plan (order of nodes, pp outside or inside of dp, layers and "
        "micro-batches in equal parts or by speed) can be faster, by its bound or by its step "
        "(tier B); then single moves of layers and micro-batches from the best"
    )
