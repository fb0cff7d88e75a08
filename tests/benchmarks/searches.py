"""Speed of searches: bounds of all plans in this process, whole searches as processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.plan import PlanSpace
from parsim.planner.bounds import KnownCuts, plan_bounds
from parsim.planner.bounds.cases import price_layers
from parsim.planner.equal.fewest import Fewest
from parsim.planner.equal.seen import Seen
from parsim.planner.equal.unseen import Unseen
from parsim.planner.space import enumerate_plans
from parsim.planner.space.families import Families
from parsim.planner.stop import Stop
from parsim.scenario import load_scenario
from parsim.sim.recurrence.evaluate import evaluate
from tests.benchmarks.measure import ROOT, Benchmark, NotRun, cpu_seconds, process_seconds

GPT3 = "scenarios/gpt3-175b-dgx-a100.yaml"
TOP = 100
"""Plans that are picked by their bounds."""
SAMPLE, SHORT = 400, 3000
"""Plans whose bounds are compared with their steps, and the forwards that they have at most."""

SEARCHES: tuple[tuple[str, dict[str, str], float], ...] = (
    (GPT3, {}, 3.0),
    (GPT3, {"search.space": "full"}, 25.0),
    (
        GPT3,
        {
            "model.name": "megatron-22b",
            "cluster.nodes": "1",
            "training.global_batch_size": "4",
            "plan": "null",
        },
        0.8,
    ),
    ("scenarios/llama3-8b-dgx-h100.yaml", {"cluster.nodes": "8", "plan": "null"}, 1.5),
    ("scenarios/llama3.1-405b-dgx-h100.yaml", {}, 10.0),
)
"""Scenario, what is set otherwise, and the seconds that the search may take as a process."""


@cache
def full_space() -> tuple[Job, PlanSpace, Families]:
    """GPT-3's full space on 1,024 devices."""
    scenario = load_scenario(ROOT / GPT3, {"search.space": "full"})
    space = scenario.space
    families = enumerate_plans(scenario.job, space).families if space else None
    if space is None or families is None:
        raise NotRun("the scenario has no space of plans")
    return scenario.job, space, families


def bounds_rate() -> float:
    """Plans a second of GPT-3's full space that are bounded, filtered by memory and ranked."""
    _, _, families = full_space()
    return len(families) / cpu_seconds(least_bounds, runs=5)


def least_bounds() -> Array:
    """The least bounds of plans of the full space that may fit."""
    job, space, families = full_space()
    cuts: KnownCuts = {}
    usable = job.usable_memory
    unseen, best = Unseen(job, families, usable, cuts, Stop()), np.full(TOP, np.inf)
    while unseen.least <= best[-1]:
        known = Seen.of(job, space, unseen.take(best[-1]), usable, cuts).known
        best = np.sort(np.append(best, known.bound[~known.too_large]))[:TOP]
    return best


@cache
def tightness() -> Array:
    """Steps of tier B over their bounds, of random plans of the full space with short schedules."""
    job, _, families = full_space()
    table = families.table()
    short = np.flatnonzero(table.pp * table.v * table.num_microbatches <= SHORT)
    plans = table.take(np.random.default_rng(0).choice(short, SAMPLE, replace=False))
    rows = np.arange(SAMPLE)
    fewest = Fewest.of(job, plans, (plans, rows), job.usable_memory, None)
    room = fewest.room._replace(most=np.inf)
    bounds = plan_bounds(job, plans, price_layers(job, plans), rows, room)
    plans = replace(plans, recompute_layers=bounds.repeated)
    steps = [evaluate(job, plans.plan(row), memory=False).step_time for row in range(SAMPLE)]
    return np.asarray(np.array(steps) / bounds.step)


def searched(scenario: str, changes: dict[str, str]) -> float:
    """A search as a process, start of Python included."""
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    return process_seconds("search", scenario, *words, runs=2)


def searches() -> Iterator[Benchmark]:
    """All rows of this file."""
    yield Benchmark(
        name="tier A, GPT-3 175B on 1,024 devices, full space",
        demand=1_500_000,
        unit="plans/s",
        measure=bounds_rate,
    )
    for name, share, most in (("median", 0.5, 1.05), ("99th percentile", 0.99, 1.5)):
        yield Benchmark(
            name=f"tier B over tier A, {name} of {SAMPLE} random plans of that space",
            demand=most,
            unit="times",
            measure=lambda share=share: float(np.quantile(tightness(), share)),  # type: ignore[misc]
        )
    for scenario, changes, seconds in SEARCHES:
        text = " ".join(f"{key}={value}" for key, value in changes.items())
        yield Benchmark(
            name=" ".join(("parsim search", scenario, text)).strip(),
            demand=seconds,
            unit="s",
            measure=lambda scenario=scenario, changes=changes: searched(scenario, changes),  # type: ignore[misc]
        )
