"""The functions of `import parsim`: scenarios and saved files come in, results leave.

Each is what the command of its name calls. A scenario stands for its job and plan; a `Job` and a
`Plan` (or a `PlanSpace`) do as well. What a function needs is loaded when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, cast

from parsim.arguments import (
    PATH,
    check_function,
    check_kind,
    check_number,
    check_whole,
    known_name,
    several,
)
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.comparison.compared import TimelineComparison
    from parsim.cost.collective.kinds import Algorithm
    from parsim.cost.collective.nccl import Protocol
    from parsim.cost.job import Job
    from parsim.plan import Plan, PlanSpace
    from parsim.planner.result import SearchResult
    from parsim.scenario import Scenario
    from parsim.sim.benchmark.collective_sweep import Collective, Sweep
    from parsim.sim.prediction import Prediction
    from parsim.sim.simulate import Tier
    from parsim.timelines.timeline import Timeline
    from parsim.training_run.training_run import TrainingRun
    from parsim.validation.validate import Validation

File = str | PathLike[str]
Progress = Callable[[int, int], None]
"""Called with what is done, and with all that is to be done."""
Sighted = Callable[[float, float], None]
"""Called with the best so far, and the share by which the best of all may be better."""

SIZES = tuple(8 * 2**doublings for doublings in range(31))
"""8 bytes to 8 GiB, each twice the one before."""


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


def _loaded(source: Scenario | Job | File) -> Scenario | Job:
    """The scenario in a file, or what is given."""
    from parsim.cost.job import Job
    from parsim.scenario import Scenario, load_scenario

    if isinstance(source, PATH):
        return load_scenario(Path(source))
    check_kind("scenario", source, (Scenario, Job), "a scenario, its file, or a job")
    return source


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
    from parsim.plan import PlanSpace
    from parsim.planner import search as find
    from parsim.scenario import Scenario
    from parsim.training_run import TrainingGoal

    check_whole("top", top)
    for name, called in (("progress", progress), ("sighted", sighted)):
        check_function(name, called)
    if space is not None:
        check_kind("space", space, PlanSpace, "a PlanSpace, or None for the scenario's")
    _check_limit(time_limit)
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


def _check_limit(time_limit: float | None) -> None:
    """Refuse seconds that are none."""
    if time_limit is not None:
        check_number("time_limit", time_limit)
        if not time_limit >= 0.0:
            raise InputError(f"time_limit={time_limit:g}: allowed are 0 seconds and more")


def timeline(source: Scenario | File, plan: Plan | None = None) -> Timeline:
    """What every pipeline rank does when: predicted for a scenario, or as it was saved.

    Args:
        source: a scenario, its file, or a timeline's file (of `parsim simulate --timeline` or
            `parsim run`).
        plan: a legal plan; the scenario's where not given.

    Raises:
        InputError: the file is wrong, or the scenario has no plan and none is given.
        PlanError: the plan is not legal.
    """
    from parsim.scenario import Scenario, load_scenario
    from parsim.timelines.reader import is_timeline, load_timeline

    if not isinstance(source, Scenario):
        check_kind("source", source, PATH, "a scenario, its file, or a timeline's file")
        if plan is None and is_timeline(Path(source)):
            return load_timeline(Path(source))
        source = load_scenario(Path(source))
    return _timeline("source", simulate(source, plan))


def compare(
    predicted: Prediction | Timeline | File,
    measured: Timeline | File,
    *,
    tolerance: float = 0.1,
) -> TimelineComparison:
    """Compare a predicted step with its measurement: signed errors of every quantity.

    Args:
        predicted: a prediction, its timeline, or a timeline's file.
        measured: a timeline, or its file.
        tolerance: the largest error of step time and peak memory for `within_tolerance`.

    Raises:
        InputError: a file is no timeline, the timelines have no rank in common, or the tolerance
            is no share.
    """
    from parsim.comparison.timelines import compare_timelines

    check_number("tolerance", tolerance)
    both = _timeline("predicted", predicted), _timeline("measured", measured)
    return compare_timelines(*both, tolerance=tolerance)


def _timeline(name: str, source: Prediction | Timeline | File) -> Timeline:
    """The timeline that is given, or that a prediction or a file holds."""
    from parsim.sim.prediction import Prediction
    from parsim.timelines.reader import load_timeline
    from parsim.timelines.timeline import Timeline

    if isinstance(source, Timeline):
        return source
    if not isinstance(source, Prediction):
        check_kind(name, source, PATH, "a prediction, a timeline, or a timeline's file")
        return load_timeline(Path(source))
    if source.timeline is None:
        raise InputError("the prediction was made without a timeline; use timeline=True")
    return source.timeline


def validate(
    tables: Sequence[File] | File | None = None, *, progress: Progress | None = None
) -> Validation:
    """Predict measured runs and compare: signed errors, ranking, coverage of the intervals.

    Args:
        tables: CSV files with a measured run per row, or one of them; the shipped ones where not
            given.
        progress: called with (rows done, rows in all).

    Raises:
        InputError: the tables are no files.
        TableError: a table cannot be read at all.
    """
    from parsim.validation.tables import all_step_tables
    from parsim.validation.validate import validate as predict_rows

    paths = all_step_tables()
    if tables is not None:
        takes = "the path of a CSV file, or a list of such paths"
        files = several("tables", tables, PATH, takes)
        paths = [Path(cast("File", file)) for file in files]
    return predict_rows(paths, progress=progress)


def collectives(
    system: str,
    nodes: int = 1,
    *,
    ranks: int | None = None,
    kinds: Sequence[Collective] | Collective | None = None,
    sizes: Sequence[int | str] | int | str = SIZES,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
) -> Sweep:
    """Predict collectives by kind and size, as nccl-tests prints them.

    Args:
        system: a name of the catalog, see `parsim catalog systems`.
        nodes: nodes of the system.
        ranks: ranks of the group, equally many on each node; every device where not given.
        kinds: `all_reduce`, or a list of such names; all that can be done where not given.
        sizes: bytes, or a text with a unit such as "64MiB"; or a list of them.
        algorithm: force `ring`, `tree`, `nvls`, ... as NCCL_ALGO does.
        protocol: force `LL`, `LL128` or `Simple` as NCCL_PROTO does.

    Raises:
        CatalogError: an unknown system.
        InputError: an unknown kind, algorithm or protocol, a size that is no whole number of
            bytes above 0, or none of them.
        PlanError: ranks that do not fit, or a kind that the algorithm or protocol cannot do.
    """
    from parsim.cluster.reader import load_catalog
    from parsim.sim.benchmark.asked import (
        asked_algorithm,
        asked_kinds,
        asked_protocol,
        asked_size,
    )
    from parsim.sim.benchmark.collective_sweep import able_kinds, sweep
    from parsim.sim.benchmark.group_layout import spread_layout

    check_kind("system", system, str, "a name of `parsim catalog systems`")
    check_whole("nodes", nodes)
    if ranks is not None:
        check_whole("ranks", ranks)
    layout = spread_layout(load_catalog().system(system), nodes, ranks)
    forced = asked_algorithm(algorithm, "algorithm="), asked_protocol(protocol, "protocol=")
    if kinds is None:
        chosen = able_kinds(layout, *forced)
    else:
        chosen = asked_kinds(several("kinds", kinds, str, "names of collectives"), "kinds=")
    amounts = several("sizes", sizes, (Real, str), "bytes, or texts with a unit")
    return sweep(
        layout,
        chosen,
        [asked_size(size, "sizes") for size in amounts],
        algorithm=forced[0],
        protocol=forced[1],
    )
