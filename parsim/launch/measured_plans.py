"""Runs the best plans of a search on this machine, in turn, and compares their order.

round 1   A  B  C          every plan runs once a round, backwards in every other one, so that
round 2   C  B  A          a machine that gets slower meanwhile is unfair to none
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.errors import InputError, ParsimError
from parsim.launch.launch import run_plan
from parsim.launch.options import RunOptions
from parsim.launch.twin import twin_of
from parsim.plan import Plan
from parsim.planner.measured import MeasuredPlan, MeasuredPlans
from parsim.report.writing import check_folder, write_text
from parsim.scenario import Scenario, load_scenario, scenario_text
from parsim.sim import simulate
from parsim.validation.ranking import regret, spearman

ROUNDS = 2
Run = Callable[[Path, int, RunOptions], dict[str, Any] | None]
"""Runs a scenario's plan and returns its document, as `run_plan`."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """How many of the best plans run, timed steps of each run, and the folder for all runs."""

    best: int = 3
    steps: int = 5
    out: Path = Path("build/measure")


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The job that runs, its plans, and in what it differs from the one that was searched."""

    scenario: Scenario
    plans: Sequence[Plan]
    twin: str


def measure_plans(
    scenario: Scenario,
    plans: Sequence[Plan],
    request: MeasureRequest,
    *,
    progress: Progress | None = None,
    run: Run = run_plan,
) -> MeasuredPlans:
    """Run plans of a scenario, or their twins where this machine cannot hold the job.

    Args:
        scenario: what was searched.
        plans: the best plans of its search, in their order.
        request: how many steps, and where results go.
        progress: called with (runs done, runs in all).
        run: what runs a plan.

    Raises:
        InputError: torch is missing, or the executor runs none of the plans.
        PlanError: the plans have no common twin.
        RunError: ranks failed while running.
    """
    jobs = _candidates(scenario, plans[: request.best], request.out)
    job = jobs.scenario.job
    able, skipped = _runnable(job, jobs.plans)
    times = _times(jobs.scenario, able, request, progress, run)
    entries = [
        MeasuredPlan(plan=plan, predicted=simulate(job, plan).step_time, runs=tuple(runs))
        for plan, runs in zip(able, times, strict=True)
    ]
    entries.sort(key=lambda entry: entry.predicted)
    pairs = [(entry.predicted, entry.measured) for entry in entries]
    return MeasuredPlans(
        plans=tuple(entries),
        spearman=spearman(pairs),
        regret=regret(pairs, 1),
        twin=jobs.twin,
        skipped=skipped,
        folder=str(request.out),
        scenario=str(scenario.path if not jobs.twin else request.out / "plan-1.yaml"),
    )


def _runnable(job: Job, plans: Sequence[Plan]) -> tuple[list[Plan], tuple[tuple[str, str], ...]]:
    """The plans that the executor runs, and the labels of the others with the reasons.

    Raises:
        InputError: there is none that it runs.
    """
    refused = [(plan, illegal(job, plan)) for plan in plans]
    able = [plan for plan, why in refused if why is None]
    skipped = tuple((plan.label(), why) for plan, why in refused if why is not None)
    if not able:
        raise InputError(f"the executor runs none of the best plans; {skipped[0][1]}")
    return able, skipped


def _times(
    scenario: Scenario,
    plans: Sequence[Plan],
    request: MeasureRequest,
    progress: Progress | None,
    run: Run,
) -> list[list[float]]:
    """Seconds of a step in each plan's `ROUNDS` runs; plans run in turns."""
    times: list[list[float]] = [[] for _ in plans]
    for done, number in enumerate(_turns(len(plans)), start=1):
        times[number].append(_measured(scenario, plans[number], number, request, run))
        if progress:
            progress(done, ROUNDS * len(plans))
    return times


def _turns(count: int) -> list[int]:
    """Numbers of plans in the order in which they run."""
    forth = list(range(count))
    return [number for turn in range(ROUNDS) for number in (forth[::-1] if turn % 2 else forth)]


def _candidates(scenario: Scenario, plans: Sequence[Plan], folder: Path) -> _Candidates:
    """The very job where it is the executor's own, which checks the machine; else its twin."""
    if scenario.job.software.executor:
        return _Candidates(scenario, plans, "")
    twin, file = twin_of(scenario, plans), folder / "searched.yaml"
    _write(file, scenario_text(scenario, plans[0]))
    return _Candidates(load_scenario(file, twin.overrides), twin.plans, twin.words)


def _write(file: Path, text: str) -> None:
    check_folder(file.parent)
    write_text(file, text)


def _measured(
    scenario: Scenario, plan: Plan, number: int, request: MeasureRequest, run: Run
) -> float:
    """Median seconds of a step of one run."""
    out = request.out / f"plan-{number + 1}"
    file = request.out / f"plan-{number + 1}.yaml"
    _write(file, scenario_text(scenario, plan))
    options = RunOptions(
        out=out,
        steps=request.steps,
        warmup=2,
        oversubscribe=plan.world_size > (os.cpu_count() or 1),
    )
    document = run(file, plan.processes, options)
    if document is None:
        raise ParsimError(f"the run of {plan.label()} left no results in {out}")
    measured: Mapping[str, Any] = document["measured"]
    return float(measured["step_time_s"]["median"])
