"""Unequal stages beside the best equal plans: simulated, with as little recomputed as fits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.planner.result import EvaluatedPlan
from parsim.planner.unequal.candidates import candidates
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.prediction import Prediction
from parsim.sim.simulate import simulate

MOST_ALIKE = 4
"""Pairs of tensor-parallel ranks and micro-batch that are looked at, those of the best plans."""
MOST_SIMULATED = 12
"""Plans with unequal stages that are simulated of each pair."""


class Judged(NamedTuple):
    """The plans that fit, the fastest first, and how many were simulated."""

    plans: tuple[EvaluatedPlan, ...]
    simulated: int


def unequal_plans(
    job: Job, space: PlanSpace, best: Sequence[EvaluatedPlan], until: float
) -> Judged:
    """Simulate unequal stages in place of the best equal plans; nothing is proven of the others.

    Args:
        job: model, devices of one kind, software.
        space: what a plan must leave free to fit.
        best: the equal plans, the fastest first; candidates that cannot beat the last are left out.
        until: `time.perf_counter` after which no further plan is begun.
    """
    slowest, fitting, simulated = best[-1].step_time, [], 0
    for like in _alike(entry.plan for entry in best):
        for candidate in candidates(job, like)[:MOST_SIMULATED]:
            if candidate.bound > slowest or time.perf_counter() > until:
                break
            simulated += 1
            prediction = _that_fits(job, candidate.plan, space)
            if prediction is not None:
                fitting.append(_evaluated(prediction))
    return Judged(tuple(sorted(fitting, key=lambda entry: entry.step_time)), simulated)


def _alike(plans: Iterable[Plan]) -> Iterator[Plan]:
    """The first plan of each pair, with nothing recomputed, in the order of the plans."""
    first: dict[tuple[int, int], Plan] = {}
    for plan in plans:
        first.setdefault((plan.tp, plan.microbatch_size), plan)
    for plan in list(first.values())[:MOST_ALIKE]:
        yield replace(plan, recompute=Recompute.NONE, recompute_modules=(), recompute_layers=0)


def _that_fits(job: Job, plan: Plan, space: PlanSpace) -> Prediction | None:
    """The plan as it is, else with half, else with all layers of its full stages recomputed."""
    for share in (0.0, 0.5, 1.0):
        prediction = simulate(job, plan, memory_margin=space.memory_margin)
        if prediction.fit == Fit.FITS:
            return prediction
        if share == 1.0 or Recompute.FULL not in space.recompute:
            return None
        plan = _recomputing(plan, prediction, 0.5 if share == 0.0 else 1.0)
    return None


def _recomputing(plan: Plan, prediction: Prediction, share: float) -> Plan:
    """The plan with a share of the layers of those stages recomputed that are not the emptiest."""
    room = (prediction.capacity - prediction.context) * (1.0 - prediction.margin.share)
    stages = [
        replace(stage, recompute_layers=-int(-share * stage.layers // 1)) if peak > room else stage
        for stage, peak in zip(plan.stages or (), prediction.peak_allocated, strict=True)
    ]
    return replace(plan, stages=tuple(stages))


def _evaluated(prediction: Prediction) -> EvaluatedPlan:
    return EvaluatedPlan(
        plan=prediction.plan,
        step_time=prediction.step_time,
        bubble_fraction=prediction.bubble_fraction,
        peak_allocated=max(prediction.peak_allocated),
        fit=prediction.fit,
        margin=prediction.margin.share,
    )
