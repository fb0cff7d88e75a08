"""How sure a simulated plan's step time is: of each kind of node, of each stack that may run it."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.sim.confidence.interval import Interval, standing_of, step_interval
from parsim.sim.confidence.known_errors import Standing
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.stack_mixture import StackTime, is_mixture, jobs_of_stacks, mixture_interval
from parsim.sim.step_breakdown import breakdown


def plan_interval(evaluation: Evaluation, standings: list[Standing] | None = None) -> Interval:
    """The 80 % interval of a plan's step time, seconds; `standings` where they are known."""
    known = standings or plan_standings(evaluation, breakdown(evaluation))
    interval = widest_interval(known, evaluation.step_time)
    job, plan = evaluation.step.job, evaluation.step.plan
    under = [evaluate(each, plan) for each in jobs_of_stacks(job, plan)] if is_mixture(job) else []
    if not under:
        return interval
    stacks = [_stack_time(each, plan_interval(each)) for each in under]
    return mixture_interval(stacks, _stack_time(evaluation, interval))


def _stack_time(evaluation: Evaluation, interval: Interval) -> StackTime:
    job, plan = evaluation.step.job, evaluation.step.plan
    return StackTime(
        software=job.software.id,
        step_time=evaluation.step_time,
        interval=interval,
        tokens_per_second=plan.global_batch_size * job.model.tokens / evaluation.step_time,
    )


def plan_standings(
    evaluation: Evaluation, parts: Mapping[str, float], peak: float | None = None
) -> list[Standing]:
    """What an interval needs to know, of a cluster of each kind of node alone.

    `peak` are the bytes of the fullest rank, where the evaluation has not counted them.
    """
    step = evaluation.step
    peak = float(evaluation.peak.max()) if peak is None else peak
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
