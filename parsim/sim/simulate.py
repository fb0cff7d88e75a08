"""Predict one plan: the front door of the simulator.

Drawing, discrete events, strategies and pipelines as tasks are imported where a plan asks for them:
a search, which has none of them, starts a twentieth of a second earlier.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.plan.layout_axes import in_axes
from parsim.sim.orders.auto import ordered
from parsim.sim.plan_interval import software_unsaid
from parsim.sim.prediction import Prediction
from parsim.sim.recurrence.evaluate import ROUNDING, Evaluation, evaluate
from parsim.sim.step.priced_step import plan_shape
from parsim.sim.step_prediction import step_prediction
from parsim.sim.utilisation import SimulatorError
from parsim.timelines.timeline import Timeline

if TYPE_CHECKING:
    from parsim.sim.data_parallel.priced_strategy import PricedStrategy

__all__ = ("SimulatorError", "guard", "plan_shape", "simulate")

Tier = Literal["evaluate", "events"]
EVENTS_ALONE = (
    "discrete events alone answer this strategy: there is nothing to compare their time with"
)
"""What is said instead of how well two tiers agree."""
STEPS_KEPT = 32
"""All-reduced steps that are remembered: a guide's, of each micro-batch, for its next strategy."""


def simulate(
    job: Job,
    plan: Plan,
    *,
    timeline: bool = False,
    tier: Tier = "evaluate",
    memory_margin: float | None = None,
    jitter: Jitter | None = None,
    stacks: bool = True,
    arrivals: bool = True,
) -> Prediction:
    """Predict step time, bubble, memory and utilisation of one plan.

    Args:
        job: model, cluster, software.
        plan: a legal plan; see `parsim.cost.legal.check_legal`. A layout of a transformer is taken
            as the plan of axes that it is.
        timeline: also build the timeline (times of every action, memory curves, critical path).
        tier: "evaluate" is the max-plus recurrence; "events" also runs the step in simpy and
            refuses to answer where the two differ.
        memory_margin: share of the usable memory that must stay free for the plan to fit; None:
            what the predicted peak may be wrong by.
        jitter: how workers differ, for strategies in which it matters who comes first; its slow
            ranks in any case; None: the usual spreads.
        stacks: whether the interval under unsaid software is that of all stacks that may run the
            plan (`plan_interval.py`), each simulated; who only ranks plans needs none of them.
        arrivals: whether a strategy in which it matters who comes first is run; where it is not,
            its step time is what its busiest queue alone takes, and it has no figures.

    Raises:
        PlanError: the plan is not legal.
        InputError: a slow rank that the plan has not, or that its stages or strategy leave out.
        SimulatorError: a guard found a bug of parsim.
    """
    plan = in_axes(plan, job.model)
    check_legal(job, plan)
    plan = ordered(job, plan, memory_margin)
    stacks = stacks and software_unsaid(job)
    slow_ranks = _slow_ranks(plan, jitter)
    if plan.runs_as_tasks and not plan.runs_own_program:
        return _as_tasks(job, plan, timeline, memory_margin, tier, stacks)
    whole = plan.whole_models if plan.runs_own_program else plan
    evaluation = _all_reduced(job, whole, slow_ranks)
    prediction = step_prediction(evaluation, memory_margin, stacks=stacks)
    if plan.runs_own_program:
        strategy = _priced(evaluation, plan)
        if strategy.priced.program.depends_on_arrival and not arrivals:
            return _untimed(strategy, prediction)
        return _of_strategy(strategy, prediction, timeline, tier, jitter)
    return _of_schedule(evaluation, prediction, plan, timeline, tier)


@lru_cache(maxsize=STEPS_KEPT)
def _all_reduced(job: Job, plan: Plan, slow_ranks: tuple[tuple[int, float], ...]) -> Evaluation:
    """The step of replicas that all-reduce, which those with other strategies compute as well."""
    evaluation = evaluate(job, plan, keep=True, slow_ranks=slow_ranks)
    guard(evaluation)
    return evaluation


def _of_schedule(
    evaluation: Evaluation, prediction: Prediction, plan: Plan, timeline: bool, tier: Tier
) -> Prediction:
    """Add to a prediction what its plan's strategy says of it, the other tier and the drawing."""
    if plan.strategy.own_program:
        from parsim.sim.data_parallel.predict import figures_of_all_reduce

        figures = figures_of_all_reduce(evaluation, plan, prediction)
        prediction = replace(prediction, strategy=figures)
    if tier == "events":
        from parsim.sim.events.step_run import events_step_time

        checked = _check_tiers(evaluation.step_time, events_step_time(evaluation.step))
        prediction = replace(prediction, checked=checked)
    if not timeline:
        return prediction
    from parsim.sim.drawing.timeline import build_timeline

    return replace(prediction, timeline=build_timeline(evaluation))


def _as_tasks(
    job: Job, plan: Plan, timeline: bool, memory_margin: float | None, tier: Tier, stacks: bool
) -> Prediction:
    """Predict a plan whose actions are tasks, from the plan whose stages are alike."""
    from parsim.sim.stages.predict import prediction_of, tier_times
    from parsim.sim.stages.run import TaskRun
    from parsim.sim.stages.variants import alike, with_room

    run = TaskRun(job, plan)
    same = alike(plan, tp=max(plan.stage_tp))
    evaluation = evaluate(with_room(job, same.world_size), same, keep=True)
    guard(evaluation)
    checked = _check_tiers(*tier_times(run)) if tier == "events" else ""
    prediction = prediction_of(run, step_prediction(evaluation, memory_margin, stacks=stacks))
    prediction = replace(prediction, checked=checked)
    return _with_drawing(prediction, run.timeline()) if timeline else prediction


def _priced(evaluation: Evaluation, plan: Plan) -> PricedStrategy:
    """The program of a plan's strategy with its prices."""
    from parsim.sim.data_parallel.priced_strategy import PricedStrategy

    return PricedStrategy.of(evaluation, plan)


def _untimed(strategy: PricedStrategy, ddp: Prediction) -> Prediction:
    """What is known of a plan without a run of its program: its memory, and the least step."""
    from parsim.sim.data_parallel.pace import least_step
    from parsim.sim.data_parallel.predict import memory_of

    step = least_step(strategy) * strategy.growth
    return replace(memory_of(strategy, ddp), plan=strategy.workers.plan, step_time=step)


def _of_strategy(
    strategy: PricedStrategy,
    ddp: Prediction,
    timeline: bool,
    tier: Tier,
    jitter: Jitter | None,
) -> Prediction:
    """Predict a plan with a program of its own, from its step with all-reduced gradients."""
    from parsim.sim.data_parallel.drawn import strategy_timeline
    from parsim.sim.data_parallel.pace import tier_times
    from parsim.sim.data_parallel.predict import prediction_of

    jitter = jitter and jitter.without("slow_ranks")  # they are in the prices
    prediction = prediction_of(strategy, ddp, jitter)
    if tier == "events":
        alone = strategy.priced.program.depends_on_arrival
        checked = EVENTS_ALONE if alone else _check_tiers(*tier_times(strategy.priced))
        prediction = replace(prediction, checked=checked)
    if not timeline:
        return prediction
    return _with_drawing(prediction, strategy_timeline(strategy, jitter))


def _slow_ranks(plan: Plan, jitter: Jitter | None) -> tuple[tuple[int, float], ...]:
    """The ranks that are listed as slow, which the plan has.

    Raises:
        InputError: it has them not, or the way in which the plan is simulated knows no slow ranks.
    """
    if jitter is None or not jitter.slow_ranks:
        return ()
    jitter.check(plan.world_size)
    if plan.runs_as_tasks or plan.strategy.sharers > 1:
        what = "stages as tasks" if plan.runs_as_tasks else f"strategy {plan.strategy.name}"
        raise InputError(
            f"jitter.slow_ranks={dict(jitter.slow_ranks)} is not simulated with {what}; leave it "
            f"out, or take a plan whose ranks each hold a stage or a whole model"
        )
    return jitter.slow_ranks


def _with_drawing(prediction: Prediction, drawn: Timeline) -> Prediction:
    """The prediction with a drawing of its first steps, which says what is predicted.

    What is drawn may begin with a fill, or lack the allowance for late ranks.
    """
    from parsim.sim.drawing.timeline import BUBBLE_IN_PICTURES

    meta = {**drawn.meta, "step_time_s": prediction.step_time}
    if prediction.strategy is None:
        meta["bubble_fraction"] = prediction.bubble_fraction
        meta["bubble_definition"] = BUBBLE_IN_PICTURES
    meta["peak_allocated_bytes"] = prediction.fullest.peak_allocated
    return replace(prediction, timeline=replace(drawn, meta=meta))


def guard(evaluation: Evaluation) -> None:
    """Refuse impossible results: makespan below the busiest rank, negative bubble or memory.

    Raises:
        SimulatorError: which of these it is.
    """
    slack = evaluation.clock.max(axis=0) - evaluation.busy.max(axis=0)
    if (slack < -ROUNDING * evaluation.pipeline_time).any() or evaluation.bubble_fraction < 0:
        raise SimulatorError("negative bubble: the pipeline ends before its busiest rank")
    if any((memory.peak < memory.static).any() for memory in evaluation.memory.values()):
        raise SimulatorError("peak memory is below static memory")


def _check_tiers(recurrence: float, events: float) -> str:
    """Refuse two times of one step, seconds, that differ by more than sums round; else say how far.

    Raises:
        SimulatorError: they differ by more.
    """
    apart = abs(events / recurrence - 1.0)
    if apart > ROUNDING:
        raise SimulatorError(f"tiers disagree: events {events!r} s, recurrence {recurrence!r} s")
    within = f"within {apart:.1g} of it" if apart else "to the last digit"
    words = f"discrete events and the recurrence agree on the step time {within}"
    return f"{words} ({ROUNDING:.0e} of it is allowed)"
