"""How sure a simulated plan's step time is: the interval of its parts, of each kind of node."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.sim.confidence.interval import Interval, standing_of, step_interval
from parsim.sim.confidence.known_errors import Standing
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.step_breakdown import breakdown


def plan_interval(evaluation: Evaluation) -> Interval:
    """The 80 % interval of a plan's step time, seconds."""
    standings = plan_standings(evaluation, breakdown(evaluation))
    return widest_interval(standings, evaluation.step_time)


def plan_standings(evaluation: Evaluation, parts: Mapping[str, float]) -> list[Standing]:
    """What an interval needs to know, of a cluster of each kind of node alone."""
    step, peak = evaluation.step, float(evaluation.peak.max())
    return [
        standing_of(step.job_on(group), step.plan, step.pricing.layers(group), parts, peak)
        for group in step.systems()
    ]


def widest_interval(standings: list[Standing], step: float) -> Interval:
    """The widest bounds that a cluster of one of the kinds would have, and of which kind."""
    intervals = [step_interval(one_kind, step) for one_kind in standings]
    widest = max(intervals, key=lambda interval: interval.high - interval.low)
    basis = widest.basis + ("; none of a mixed cluster" if len(standings) > 1 else "")
    low, high = min(each.low for each in intervals), max(each.high for each in intervals)
    return Interval(low=low, high=high, basis=basis)
