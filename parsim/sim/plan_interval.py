"""How sure a simulated plan's step time is: of each kind of node, of each stack that may run it.

Somebody who does not say which software runs the plan asks about all of them. The answer is a
mixture of the measured stacks and of one that nobody measured (generic assumptions), each as likely
as the others, with its own step time and its own spread:

    P(step <= t) = mean over stacks of Phi( (ln t - ln t_s) / sd_s ),   sd_s = half_s / 1.2816

and its 80 % interval lies between the mixture's 10 % and 90 % quantiles. A split normal: the sides
of a stack's interval may differ.

Leaves out: that users do not choose stacks at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import erf, exp, log, sqrt

from parsim.cost.job import Job, kind_of
from parsim.cost.legal import check_legal
from parsim.cost.software import GENERIC, software, software_catalog
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.sim.confidence.basis import Z80
from parsim.sim.confidence.interval import Interval, standing_of, step_interval
from parsim.sim.confidence.known_errors import (
    ANY,
    COVERAGE,
    Errors,
    Standing,
    errors_of,
)
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.step_breakdown import breakdown

LEAST_STACKS = 2
"""Fewer measured stacks make no mixture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTime:
    """A stack's step time, seconds, its 80 % interval, and its throughput."""

    software: str
    step_time: float
    interval: Interval
    tokens_per_second: float

    def below(self, seconds: float) -> float:
        """How likely the step takes at most so many seconds under this stack."""
        side = self.interval.low if seconds < self.step_time else self.interval.high
        spread = abs(log(side / self.step_time)) / Z80
        return 0.5 * (1.0 + erf(log(seconds / self.step_time) / spread / sqrt(2.0)))


def software_unsaid(job: Job) -> bool:
    """Whether a job's software is not said, on a device of which several stacks were measured."""
    unsaid = job.software.id == GENERIC and not job.mixed and not job.device.calibrated
    return unsaid and len(stacks_on(job, errors_of(job.practice))) >= LEAST_STACKS


def stacks_on(job: Job, errors: Errors) -> list[str]:
    """Ids of the described stacks that were measured on the job's device with its kind of model."""
    kind = kind_of(job.practice)
    measured = {
        name.removesuffix(kind)
        for device, name, release in errors.groups
        if (device, release) == (job.device.id, ANY) and kind_of(name) == kind
    }
    return sorted(measured & software_catalog().keys())


def jobs_of_stacks(job: Job, plan: Plan) -> list[Job]:
    """The job under each measured stack that may run the plan."""
    return [
        candidate
        for name in stacks_on(job, errors_of(job.practice))
        if _is_legal(candidate := replace(job, software=software(name)), plan)
    ]


def _is_legal(job: Job, plan: Plan) -> bool:
    try:
        check_legal(job, plan)
    except PlanError:
        return False
    return True


def mixture_interval(
    stacks: Sequence[StackTime], unsaid: StackTime, unit: str = "tokens/s"
) -> Interval:
    """The mixture's 80 % interval, seconds, and the measured stacks' throughputs in that unit.

    The assumed step time lies inside, whatever the stacks say.
    """
    tail, every = 0.5 * (1.0 - COVERAGE), (*stacks, unsaid)
    low, high = quantile(every, tail), quantile(every, 1.0 - tail)
    fastest = sorted(stacks, key=lambda stack: stack.step_time)
    told = ", ".join(f"{stack.software} {_short(stack.tokens_per_second)}" for stack in fastest)
    return Interval(
        low=min(low, unsaid.step_time),
        high=max(high, unsaid.step_time),
        basis=f"software is not said: any of the stacks measured on this device ({told} {unit})",
    )


def quantile(stacks: Sequence[StackTime], share: float) -> float:
    """Seconds in which the step ends with that probability, by bisection of the logarithm."""
    low = log(min(stack.interval.low for stack in stacks)) - 3.0
    high = log(max(stack.interval.high for stack in stacks)) + 3.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = sum(stack.below(exp(middle)) for stack in stacks) / len(stacks)
        low, high = (middle, high) if below < share else (low, middle)
    return exp(0.5 * (low + high))


def _short(tokens: float) -> str:
    """75,600 as 75.6k; 1,234,000 as 1.23M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g}{letter}"
    return f"{tokens:.3g}"


def plan_interval(
    evaluation: Evaluation, standings: list[Standing] | None = None, *, stacks: bool = True
) -> Interval:
    """The 80 % interval of a plan's step time, seconds.

    Args:
        evaluation: the step under its own software.
        standings: what the interval follows from, where it is known.
        stacks: whether unsaid software is all stacks that may run the plan, each evaluated here.
    """
    known = standings or plan_standings(evaluation, breakdown(evaluation))
    interval = widest_interval(known, evaluation.step_time)
    job, plan = evaluation.step.job, evaluation.step.plan
    jobs = jobs_of_stacks(job, plan) if stacks and software_unsaid(job) else []
    if not jobs:
        return interval
    under = [evaluate(each, plan) for each in jobs]
    times = [_stack_time(each, plan_interval(each)) for each in under]
    return mixture_interval(times, _stack_time(evaluation, interval), job.model.speed_unit)


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
