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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.mixed import rank_groups
from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, even_cut
from parsim.cost.step import step_costs
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.plan.rules import violation
from parsim.schedule import build_schedule
from parsim.search.placements import Speeds, lower_bound, orders, placements, shared_bound
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


_Same = tuple[str, int, int, int, tuple[int, ...] | None]
"""Schedule, pp, micro-batches, v and cut: plans whose bytes are counted together."""


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
        self.laid = {order: rank_groups(job.cluster, order) for order in orders(job.cluster)}
        doublings = max(float(np.log2(job.cluster.num_devices / 8.0)), 0.0)
        straggler = max(system.straggler for system in systems)
        self.growth = (1.0 + straggler * doublings) * (1.0 - ROUNDING)
        usable = [system.device.usable_memory for system in systems]
        self.usable = np.array(usable) * (1.0 - space.memory_margin)

    def bounds(self) -> Array:
        """Of every plan, whatever its placement, seconds."""
        groups = self.job.cluster.groups
        devices = [one.num_nodes * one.system.devices_per_node for one in groups]
        shared = shared_bound(self.layers, self.table, self.job.model, devices)
        return shared * self.growth

    def placed(self, rows: Sequence[int]) -> list[_Candidate]:
        """Every placement of some plans, with what it needs and its bound."""
        found = []
        for row in rows:
            speeds, plan = Speeds.of(self.layers, row), self.table.plan(row)
            for one, slots in placements(plan, self.laid, self.job.model, speeds, self.usable):
                uneven = one.replica_microbatches is not None
                if uneven and violation(one, self.job.model, self.job.cluster):
                    continue
                found.append(self.candidate(one, row, speeds, slots))
        self.weigh(found)
        return found

    def candidate(self, plan: Plan, row: int, speeds: Speeds, slots: Slots) -> _Candidate:
        """One placement with its bound."""
        found = _Candidate(plan=plan, row=row, slots=slots)
        found.bound = lower_bound(plan, self.job.model, speeds, slots) * self.growth
        return found

    def weigh(self, found: Sequence[_Candidate]) -> None:
        """Count the bytes of candidates, those of one shape and cut together."""
        groups: dict[_Same, dict[int, list[_Candidate]]] = {}
        for one in found:
            plan = one.plan
            for count in set(plan.microbatches):
                key = (plan.schedule, plan.pp, count, plan.v, plan.stage_layers)
                groups.setdefault(key, {}).setdefault(one.row, []).append(one)
        for one in found:
            one.fits = True
        for same, rows in groups.items():
            self._weigh(same[2], rows)

    def _weigh(self, count: int, rows: dict[int, list[_Candidate]]) -> None:
        numbers = np.array(sorted(rows))
        plan = rows[int(numbers[0])][0].plan
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

    best: list[_Candidate] = field(default_factory=list)
    nearest: _Candidate | None = None
    placed: int = 0
    too_large: int = 0
    evaluated: int = 0
    stopped: str = ""


CHUNK = 32
"""Plans that are placed at once, so that their bytes are counted together."""


def _rank(one: _Candidate) -> tuple[float, float]:
    return (one.step, one.peak)


def _best_first(work: _Search, top: int, limit: float, progress: Progress | None) -> _Run:
    """The `top` fastest placements; plans are placed when their bound is the least of all."""
    ran, bounds = _Run(), work.bounds()
    queue: list[tuple[float, int, _Candidate]] = []
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


def _noted(ran: _Run, found: list[_Candidate]) -> list[_Candidate]:
    """Those that fit; the others are counted."""
    fitting = [one for one in found if one.fits]
    ran.placed += len(found)
    ran.too_large += len(found) - len(fitting)
    known = [ran.nearest] if ran.nearest else []
    ran.nearest = min([*known, *found], key=lambda one: one.peak, default=None)
    return fitting


def _nothing_fits(work: _Search, ran: _Run) -> str:
    if ran.stopped:
        return (
            f"{ran.stopped} after {ran.placed:,} placed plans, and none of those was priced; give "
            f"it more time, or a smaller space"
        )
    if ran.nearest is None:
        raise RuntimeError("no plan was placed")
    return nearest_miss_message(work.job, ran.nearest.plan, work.space.memory_margin)


def _refined(work: _Search, best: _Candidate) -> list[_Candidate]:
    """Plans faster than the best by single moves, the fastest last."""
    found: list[_Candidate] = []
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


def _optimality(ran: _Run) -> str:
    if ran.stopped:
        return f"{ran.stopped} after {ran.evaluated:,} priced placements: best so far"
    return (
        "proven: no other placement (order of nodes, pp outside or inside of dp, layers and "
        "micro-batches in equal parts, by speed or by memory) is faster, by its bound or by its "
        "step (tier B); then single moves of layers and micro-batches from the best"
    )
