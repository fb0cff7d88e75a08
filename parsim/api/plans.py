"""One plan's step and training run, and the best of all plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from parsim.arguments import (
    PATH,
    File,
    check_function,
    check_kind,
    check_number,
    check_whole,
    known_name,
)
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.cost.job import Job
    from parsim.plan import Plan, PlanSpace
    from parsim.planner.result import SearchResult
    from parsim.scenario import Scenario
    from parsim.sim.prediction import Prediction
    from parsim.sim.simulate import Tier
    from parsim.training_run.training_run import TrainingRun

Progress = Callable[[int, int], None]
"""Called with what is done, and with all that is to be done."""
Sighted = Callable[[float, float], None]
"""Called with the best so far, and the share by which the best of all may be better."""


def simulate(
    scenario: Scenario | Job | File,
    plan: Plan | None = None,
    *,
    timeline: bool = True,
    tier: Tier = "evaluate",
) -> Prediction:
    """Predict step time, bubble, memory and utilisation of one plan.

    Args:
        scenario: what is trained on what, as `load_scenario` returns it; its file; or a job.
        plan: a legal plan; the scenario's where not given.
        timeline: also build `prediction.timeline`: times of every action, memory curves, critical
            path. Without it the prediction of many thousand ranks takes a tenth of the time.
        tier: "evaluate" is the max-plus recurrence; "events" also runs the step as discrete events
            and refuses to answer where the two differ.

    Raises:
        InputError: the scenario has no plan, and none is given; or an argument is of another kind.
        PlanError: the plan is not legal.
    """
    from parsim.plan import Plan
    from parsim.scenario import Scenario
    from parsim.sim import simulate as predict

    scenario = _loaded(scenario)
    if plan is not None:
        check_kind("plan", plan, Plan, "a Plan, or None for the scenario's")
    known_name("tier=", tier, ("evaluate", "events"))
    if isinstance(scenario, Scenario):
        job, plan = scenario.job, plan or scenario.fixed_plan()
        margin = scenario.memory_margin
        jitter = scenario.jitter
    else:
        job, margin, jitter = scenario, None, None
    if plan is None:
        raise InputError("simulate(job) needs a plan; allowed: a scenario, or a job and a plan")
    return predict(job, plan, timeline=timeline, tier=tier, memory_margin=margin, jitter=jitter)


def whole_run(scenario: Scenario | File, plan: Plan | None = None) -> TrainingRun:
    """What a whole training run takes: days, device-hours, dollars and kilowatt-hours.

    Args:
        scenario: what is trained on what, with `training.tokens`, as `load_scenario` returns it;
            or its file.
        plan: a legal plan; the scenario's where not given.

    Raises:
        InputError: the scenario states no tokens or has no plan, or failures leave no time to
            train.
        PlanError: the plan is not legal.
    """
    from parsim.scenario import Scenario
    from parsim.training_run.training_run import predicted_run

    loaded = _loaded(scenario)
    if not isinstance(loaded, Scenario):
        raise InputError("whole_run needs a scenario or its file; a job alone states no tokens")
    prediction = simulate(loaded, plan, timeline=False)
    run = predicted_run(loaded.job, loaded.goal, prediction)
    if run is None:
        raise InputError(
            "training.tokens is not stated; add it to the scenario, e.g. "
            "load_scenario(path, {'training.tokens': '300B'})"
        )
    return run


def search(
    scenario: Scenario | Job | File,
    space: PlanSpace | None = None,
    *,
    top: int = 10,
    time_limit: float | None = None,
    progress: Progress | None = None,
    sighted: Sighted | None = None,
) -> SearchResult:
    """Find the best of all legal plans, the fastest first.

    Args:
        scenario: what is trained on what, as `load_scenario` returns it; its file; or a job.
        space: the values that plans may have; the scenario's where not given.
        top: how many plans to return.
        time_limit: stop after so many seconds and return the best so far.
        progress: called with (plans done, plans in all).
        sighted: called with the best step so far, seconds, and the share by which the best of all
            may be faster.

    Raises:
        InputError: a job without a space, `top` below 1, a negative time limit, or an argument of
            another kind.
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: nothing fits; says by how much and what would.
    """
    from parsim.planner import search as find
    from parsim.scenario import Scenario
    from parsim.training_run import TrainingGoal

    _check_search(space, top, time_limit, ("progress", progress), ("sighted", sighted))
    scenario, goal, jitter = _loaded(scenario), TrainingGoal(), None
    if isinstance(scenario, Scenario):
        job, space, goal = scenario.job, space or scenario.plan_space(), scenario.goal
        jitter = scenario.jitter
    else:
        job = scenario
    if space is None:
        raise InputError("search(job) needs a space; allowed: a scenario, or a job and a space")
    if top < 1:
        raise InputError(f"top={top}: allowed are 1 and more plans")
    return find(
        job,
        space,
        top=top,
        progress=progress,
        time_limit=time_limit,
        goal=goal,
        sighted=sighted,
        jitter=jitter,
    )


def _check_search(
    space: PlanSpace | None, top: int, time_limit: float | None, *called: tuple[str, object]
) -> None:
    """Refuse arguments of another kind; `called` are functions by their names, or None."""
    from parsim.plan import PlanSpace

    check_whole("top", top)
    for name, function in called:
        check_function(name, function)
    if space is not None:
        check_kind("space", space, PlanSpace, "a PlanSpace, or None for the scenario's")
    if time_limit is not None:
        check_number("time_limit", time_limit)
        if not time_limit >= 0.0:
            raise InputError(f"time_limit={time_limit:g}: allowed are 0 seconds and more")


def _loaded(source: Scenario | Job | File) -> Scenario | Job:
    """The scenario in a file, or what is given."""
    from parsim.cost.job import Job
    from parsim.scenario import Scenario, load_scenario

    if isinstance(source, PATH):
        return load_scenario(Path(source))
    check_kind("scenario", source, (Scenario, Job), "a scenario, its file, or a job")
    return source
