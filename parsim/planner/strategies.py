"""Data-parallel strategies beside the synchronous plan space of a search.

Each strategy that a space names is put on every legal plan of the space whose workers hold the
whole model, and predicted by its own tier. There is no lower bound of it: all are evaluated.

Steps of strategies whose gradients are stale, dropped or compressed, or whose workers drift apart,
do not train as those of a whole batch do. What that costs is not predicted: such plans are listed
by themselves, and ranked with the others only where a space does not ask for synchronous ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.errors import PlanError
from parsim.plan import Plan, PlanSpace
from parsim.plan.layout_axes import in_axes
from parsim.plan.strategies import Strategy
from parsim.planner.limits import allowed
from parsim.planner.ranked import Ranked
from parsim.planner.result import SearchResult, beside
from parsim.planner.space.families import Families
from parsim.sim import Prediction, simulate
from parsim.training_run import TrainingGoal
from parsim.training_run.training_run import predicted_run

WHOLE_BATCH = "strategies whose steps are not those of the whole batch are listed apart"
"""What a search says of those that it does not rank."""


NO_ROOM = "no plan with it fits, or keeps to the limits of the search"
"""Why a strategy that a job may have has no plan."""


@dataclass(slots=True)
class _Funnel:
    """What became of the plans with a strategy of their own."""

    plans: int = 0
    illegal: int = 0
    out_of_memory: int = 0
    evaluated: int = 0
    stopped: bool = False
    reasons: dict[str, str] = field(default_factory=dict)  # by strategy, why its first plan is none


def with_strategies(
    job: Job,
    space: PlanSpace,
    families: Families,
    result: SearchResult,
    *,
    top: int,
    goal: TrainingGoal,
    until: float = inf,
    jitter: Jitter | None = None,
) -> SearchResult:
    """Add the plans of a space's strategies to what a search found.

    Args:
        job: model, cluster, software.
        space: names the strategies.
        families: the legal plans of the space.
        result: what was found with all-reduced gradients.
        top: how many plans are ranked, and how many are listed apart.
        goal: how long one trains at what price.
        until: when to stop, as `time.perf_counter` says it.
        jitter: how workers differ; its slow ranks are left aside, as everywhere in a search.
    """
    strategies = [strategy for strategy in space.strategies if strategy.own_program]
    if not strategies:
        return result
    funnel = _Funnel()
    judge = _Judge(job=job, space=space, jitter=jitter and jitter.without("slow_ranks"))
    listed = {row.plan for row in result.plans}
    rows = [
        row
        for row in _rows(judge, list(_workers(families)), strategies, goal, funnel, until)
        if row.plan not in listed  # a layout of a transformer is a plan of axes
    ]
    ranked = [row for row in rows if not (space.synchronous and row.trains_otherwise)]
    apart = [row for row in rows if space.synchronous and row.trains_otherwise]
    plans = sorted((*result.plans, *ranked), key=_speed)[:top]
    fastest = _fastest(rows)
    return replace(
        result,
        fastest=(*result.plans[:1], *sorted(fastest.values(), key=_speed)),
        planless={name: why for name, why in funnel.reasons.items() if name not in fastest},
        plans=tuple(beside(plans[0], row) for row in plans),
        apart=tuple(beside(plans[0], row) for row in sorted(apart, key=_speed)[:top]),
        counts={**result.counts, **_counts(funnel)},
        optimality=f"{result.optimality}; {_words(funnel, space)}",
    )


def _fastest(rows: Sequence[Ranked]) -> dict[str, Ranked]:
    """The fastest plan of each strategy, by its label."""
    fastest: dict[str, Ranked] = {}
    for row in sorted(rows, key=_speed):
        fastest.setdefault(row.plan.strategy.label(), row)
    return fastest


def _speed(row: Ranked) -> float:
    return row.step_time


def _workers(families: Families) -> Iterator[Plan]:
    """The legal plans whose replicas hold the whole model, each once."""
    plain = families.plain
    whole = (plain.tp * plain.pp * plain.cp * plain.ep * plain.dp_shard == 1) & (
        plain.zero_stage == 0
    )
    table = families.table(np.flatnonzero(whole))
    seen: set[Plan] = set()
    for row in range(len(table)):
        plan = table.plan(row)
        plan = replace(plan, recompute_layers=max(plan.recompute_layers, 0))  # the fewest: none
        if plan not in seen:
            seen.add(plan)
            yield plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """Predicts plans of a job and says whether a space allows them; `jitter` is of the workers."""

    job: Job
    space: PlanSpace
    jitter: Jitter | None

    def prediction(self, plan: Plan) -> Prediction:
        """Seconds and bytes of a plan's step."""
        margin = self.space.memory_margin
        return simulate(self.job, plan, memory_margin=margin, jitter=self.jitter)


def _rows(
    judge: _Judge,
    plans: Sequence[Plan],
    strategies: Sequence[Strategy],
    goal: TrainingGoal,
    funnel: _Funnel,
    until: float,
) -> Iterator[Ranked]:
    """Every strategy on every plan that may have it and fits, evaluated by its own tier."""
    for strategy in strategies:
        for workers in plans:
            if time.perf_counter() > until:
                funnel.stopped = True
                return
            plan = _legal(judge.job, replace(workers, strategy=strategy))
            funnel.plans += 1
            if isinstance(plan, str):
                funnel.reasons.setdefault(strategy.label(), plan)
                funnel.illegal += 1
                continue
            prediction = judge.prediction(plan)
            if allowed(prediction, judge.space):
                funnel.evaluated += 1
                yield _ranked(judge.job, prediction, goal)
            else:
                funnel.reasons.setdefault(strategy.label(), NO_ROOM)
                funnel.out_of_memory += 1


def _legal(job: Job, plan: Plan) -> Plan | str:
    """The plan, a layout of a transformer in axes; in words why it may not be."""
    try:
        equal = in_axes(plan, job.model)
    except PlanError as error:
        return str(error)
    return illegal(job, equal) or equal


def _ranked(job: Job, prediction: Prediction, goal: TrainingGoal) -> Ranked:
    return Ranked(
        plan=prediction.plan,
        step_time=prediction.step_time,
        interval=prediction.interval,
        tied=False,
        tokens_per_second=prediction.tokens_per_second,
        speed_unit=prediction.speed_unit,
        mfu=prediction.mfu,
        bubble_fraction=prediction.bubble_fraction,
        peak_allocated=prediction.fullest.peak_allocated,
        fit=prediction.fit,
        margin=prediction.margin.share,
        breakdown=prediction.breakdown,
        strategy=prediction.strategy,
        run=predicted_run(job, goal, prediction),
    )


def _counts(funnel: _Funnel) -> dict[str, int]:
    return {
        "strategy_plans": funnel.plans,
        "strategy_illegal": funnel.illegal,
        "strategy_out_of_memory": funnel.out_of_memory,
        "strategy_evaluated": funnel.evaluated,
    }


def _words(funnel: _Funnel, space: PlanSpace) -> str:
    """How far the strategies were looked at, and what they are ranked by."""
    names = ", ".join(s.label() for s in space.strategies if s.own_program)
    how = "until the search stopped" if funnel.stopped else "each by its own tier, without a bound"
    apart = f"; {WHOLE_BATCH}" if space.synchronous else "; convergence is not compared"
    return (
        f"strategies beside them ({names}): {funnel.evaluated} of {funnel.plans} plans evaluated, "
        f"{how}{apart}"
    )
