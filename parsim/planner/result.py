"""What a search found: evaluated plans in their order, and what happened to the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple

from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan, PlanSpace
from parsim.planner.ranked import Ranked
from parsim.planner.stop import PATIENCE, Stop
from parsim.results import Result
from parsim.sim.confidence.interval import Interval
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.plan_interval import plan_interval, plan_standings
from parsim.sim.prediction import Prediction
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.simulate import simulate
from parsim.sim.step_breakdown import breakdown
from parsim.sim.utilisation import mean_peak_flops
from parsim.space.words import looked_at
from parsim.training_run import TrainingGoal
from parsim.training_run.estimate import Estimate
from parsim.training_run.power import computing_share
from parsim.training_run.training_run import training_run
from parsim.units import format_bytes, format_seconds

Progress = Callable[[int, int], None]
Sighted = Callable[[float, float], None]
"""Called with the best step so far, seconds, and the share by which the best of all may be faster.
"""

SCHEMA_VERSION = 1


class EvaluatedPlan(NamedTuple):
    """A plan that fits or is tight: its step in seconds, bubble, and fullest rank's peak in bytes.

    `margin` is the share of memory that it had to leave free to fit. `layers` are the costs of its
    layers where they are known, on nodes of one kind.
    """

    plan: Plan
    step_time: float
    bubble_fraction: float
    peak_allocated: float
    fit: Fit
    margin: float
    layers: tuple[LayerTable, ...] = ()

    @classmethod
    def of(cls, prediction: Prediction) -> EvaluatedPlan:
        """The plan of a prediction with its numbers."""
        return cls(
            plan=prediction.plan,
            step_time=prediction.step_time,
            bubble_fraction=prediction.bubble_fraction,
            peak_allocated=prediction.fullest.peak_allocated,
            fit=prediction.fit,
            margin=prediction.margin.share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a search: how many plans, until when, for which whole run.

    `progress` and `sighted` are called on the way.
    """

    top: int
    progress: Progress | None
    stop: Stop
    goal: TrainingGoal
    sighted: Sighted | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SearchResult(Result):
    """The best plans first, and what happened to the others.

    `illegal_reasons` maps the rule that a plan breaks first, in words, to how many plans break it.
    `counts` are enumerated = illegal + out_of_memory + tight + slower + evaluated, where a search
    ran to its end: plans whose peak is above usable memory, those that do not leave their margin
    free, those that a lower bound of their step alone puts behind the best, whether they fit or
    not, and those that fit and were simulated. Where no plan fits, `plans` are tight ones; else
    `faster_tight` is the fastest tight one, if faster than the first. `left_out` says what
    `optimality` does not speak of: by field of a plan, the values that were not looked at. `limits`
    are the usable bytes of each kind of device. `space` is what was searched. `apart` are plans
    with strategies that do not train as the whole batch does, the fastest first. `fastest` has the
    fastest plan of each strategy, all-reduced gradients first, where others were asked for, and
    `planless` says of each that has no plan why not. How many plans with strategies or unequal
    stages there were stands in `counts` by itself (`strategy_plans`, `unequal_plans` and so on).
    """

    plans: tuple[Ranked, ...]
    counts: dict[str, int]
    illegal_reasons: dict[str, int]
    optimality: str
    left_out: dict[str, str]
    space: PlanSpace
    seconds: float
    limits: tuple[float, ...] = ()
    faster_tight: Ranked | None = None
    apart: tuple[Ranked, ...] = ()
    fastest: tuple[Ranked, ...] = ()
    planless: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The best plan, and of how many it is the best."""
        best, counts = self.plans[0], self.counts
        legal = counts["enumerated"] - counts["illegal"]
        return (
            f"{best.plan.label()}: {format_seconds(best.step_time)}, MFU {100 * best.mfu:.1f} %, "
            f"{format_bytes(best.peak_allocated)}; best of {legal:,} legal plans"
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim search --json` prints (no times of day, no durations)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "plans": [plan.to_json() for plan in self.plans],
            "counts": dict(self.counts),
            "illegal_reasons": dict(self.illegal_reasons),
            "optimality": self.optimality,
            "left_out": dict(self.left_out),
            "axes": looked_at(self.space),
            "usable_memory_bytes": list(self.limits),
            "faster_tight_plan": self.faster_tight and self.faster_tight.to_json(),
            **({"train_otherwise": [row.to_json() for row in self.apart]} if self.apart else {}),
            **self._strategies(),
        }

    def _strategies(self) -> dict[str, Any]:
        """The fastest plan of each strategy that was asked for, and why others have none."""
        if not (self.fastest or self.planless):
            return {}
        fastest = [row.to_json() for row in self.fastest]
        return {"fastest_of_strategies": fastest, "strategies_without_plan": dict(self.planless)}

    def records(self) -> list[dict[str, Any]]:
        """One row per plan."""
        return [ranked.record() for ranked in self.plans]


def ranked_plans(
    job: Job, best: Sequence[EvaluatedPlan], goal: TrainingGoal, until: float = inf
) -> tuple[Ranked, ...]:
    """Plans in their order, the fastest first, each with its interval and its whole run.

    Describing a plan takes tens of milliseconds or more, so that those behind the first are left
    out soon after `time.perf_counter` is past `until`.
    """
    late = max(until, time.perf_counter()) + PATIENCE
    in_time = takewhile(lambda entry: not entry[0] or time.perf_counter() <= late, enumerate(best))
    ranked = [_ranked(job, evaluated, goal) for _, evaluated in in_time]
    return tuple(beside(ranked[0], entry) for entry in ranked)


class Shown(NamedTuple):
    """The plans of a result, and the fastest tight one where it is faster than those that fit.

    `cut` says in words how many of the best are described, where time did not suffice for all.
    """

    plans: tuple[Ranked, ...]
    faster_tight: Ranked | None
    cut: str


def shown(
    job: Job,
    best: Sequence[EvaluatedPlan],
    tight: EvaluatedPlan | None,
    request: Request,
) -> Shown:
    """Rank plans, and beside them the fastest tight one if the first of them is slower."""
    plans, cut, faster = ranked_plans(job, best, request.goal, request.stop.until), "", None
    if tight is not None and tight.step_time < best[0].step_time:
        faster = beside(plans[0], _ranked(job, tight, request.goal))
    if len(plans) < len(best):
        cut = f"; {len(plans):,} of the {len(best):,} fastest are listed, for time was up"
    return Shown(plans, faster, cut)


def gap_words(gap: float) -> str:
    """By how much the best of all may be faster, where a plan is known to fit; gap is a share."""
    return f", at most {100.0 * gap:.1f} % slower than the best of all" if gap < inf else ""


def unknown_words(parts: Iterable[str]) -> str:
    """Say that nothing is known of some plans where a search stopped; nothing where of all."""
    named = " and ".join(part for part in parts if part)
    return f"; {named}: of these plans nothing is known" if named else ""


def beside(first: Ranked, entry: Ranked) -> Ranked:
    """The plan, said to be tied with the first where each lies in the other's interval."""
    tied = entry.interval.low <= first.step_time and entry.step_time <= first.interval.high
    return replace(entry, tied=tied)


def _interval_and_parts(job: Job, evaluated: EvaluatedPlan) -> tuple[Interval, Mapping[str, float]]:
    """How sure a step is and where it goes; stages of their own are run task by task."""
    plan = evaluated.plan
    if plan.runs_as_tasks:
        prediction = simulate(job, plan)
        return prediction.interval, prediction.breakdown
    whole = evaluate(job, plan, layers=evaluated.layers, memory=job.mixed)
    parts = breakdown(whole)
    peak = None if job.mixed else evaluated.peak_allocated
    return plan_interval(whole, plan_standings(whole, parts, peak)), parts


def _ranked(job: Job, evaluated: EvaluatedPlan, goal: TrainingGoal) -> Ranked:
    """A plan of the result: how sure its step is, where it goes, and the whole run."""
    plan, step = evaluated.plan, evaluated.step_time
    interval, parts = _interval_and_parts(job, evaluated)
    flops = job.model.step_flops(plan.global_batch_size)
    return Ranked(
        plan=plan,
        step_time=step,
        interval=interval,
        tied=False,
        tokens_per_second=plan.global_batch_size * job.model.tokens / step,
        speed_unit=job.model.speed_unit,
        mfu=flops / (step * mean_peak_flops(job, plan) * plan.world_size),
        bubble_fraction=evaluated.bubble_fraction,
        peak_allocated=evaluated.peak_allocated,
        fit=evaluated.fit,
        margin=evaluated.margin,
        breakdown=parts,
        run=training_run(
            job,
            goal,
            batch=plan.global_batch_size,
            step=Estimate(interval.low, step, interval.high),
            computing=computing_share(parts, step),
        ),
    )
