"""A plan with unequal stages, simulated with as little recomputation as makes it fit."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.planner.result import EvaluatedPlan
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.prediction import Prediction
from parsim.sim.simulate import simulate


def room_of(job: Job, space: PlanSpace) -> float:
    """Bytes of a device beside its context that a plan of a space may use."""
    cap = inf if space.memory_cap is None else space.memory_cap
    return min(job.device.usable_memory, cap)


def evaluated_fitting(job: Job, plan: Plan, space: PlanSpace) -> EvaluatedPlan | None:
    """The plan as it is, else with half, else with all layers of its full stages recomputed.

    None where a space does not allow any of these.
    """
    for share in (0.5, 1.0, None):
        prediction = simulate(job, plan, memory_margin=space.memory_margin)
        if _allowed(job, prediction, space):
            return _evaluated(prediction)
        if share is None or Recompute.FULL not in space.recompute:
            return None
        plan = _recomputing(plan, prediction, share, room_of(job, space))
    return None


def _allowed(job: Job, prediction: Prediction, space: PlanSpace) -> bool:
    """Whether a plan fits the devices and the space's own limits."""
    busy = space.max_bubble is None or prediction.bubble_fraction <= space.max_bubble
    capped = max(prediction.peak_allocated) <= room_of(job, space)
    return prediction.fit == Fit.FITS and capped and busy


def _recomputing(plan: Plan, prediction: Prediction, share: float, usable: float) -> Plan:
    """The plan with a share of the layers of those stages recomputed that are not the emptiest."""
    room = usable * (1.0 - prediction.margin.share)
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
