"""Speed of the simulator's tiers, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsim.cost.jitter import Jitter
from parsim.cost.step.costs import StepCosts
from parsim.schedule import build_schedule
from parsim.sim.lateness.pipelines import RankGrid, ReplicaPipelines
from parsim.sim.lateness.study import Study
from parsim.sim.recurrence.evaluate import pipeline
from parsim.sim.recurrence.maxplus import ClassTimes, step_end
from parsim.sim.recurrence.maxplus import run as run_plans
from parsim.sim.rounds.rounds_end import staleness
from parsim.sim.rounds.run import run_rounds
from parsim.sim.step.compiled_schedule import compiled_schedule
from parsim.sim.step.folding import fold
from tests.benchmarks.measure import Benchmark, cpu_seconds
from tests.parsim.sim.rounds.servers import prices, server
from tests.parsim.sim.step.mesh import mesh_links
from tests.parsim.sim.tiers import simulate_events

PP8 = ("1f1b", 8, 32, 1)
PP16 = ("interleaved_1f1b", 16, 128, 4)
"""Shapes as in parsim.sim.recurrence.evaluate: schedule, pp, micro-batches, v."""


def random_costs(pp: int, v: int, plans: int = 1) -> StepCosts:
    """Uneven stages, hops of 3 %, one bucket a stage."""
    rng = np.random.default_rng(0)
    stages = (pp * v, plans)
    forward, zero, ranks = rng.uniform(1.0, 1.2, stages), np.zeros(stages), np.zeros((pp, plans))
    return StepCosts(
        forward=forward,
        backward=2 * forward,
        exposed_forward=0.1 * forward,
        exposed_backward=0.1 * forward,
        recomputed=zero,
        hop=np.full(stages, 0.037),
        buckets=np.ones(stages),
        bucket_time=np.full(stages, 0.1),
        tied=np.zeros(plans),
        norm=np.zeros(plans),
        optimizer=ranks,
        gather=ranks,
        late=np.zeros(plans),
        straggler=np.zeros(plans),
        parameters=zero,
        trained=zero,
        blocking_p2p=False,
        overlap_reduce=True,
    )


def plans_per_second(shape: tuple[str, int, int, int], batch: int) -> float:
    """Tier B's recurrence for a batch of one shape."""
    graph = compiled_schedule(*shape)
    times = ClassTimes.of(graph, random_costs(shape[1], shape[3], batch))
    return batch / cpu_seconds(lambda: run_plans(graph, times))


def cold_plan() -> float:
    """Generate, compile and evaluate one schedule with nothing in the cache."""
    costs = random_costs(PP16[1], PP16[3])

    def once() -> None:
        compiled_schedule.cache_clear()
        graph = compiled_schedule(*PP16)
        step_end(graph, costs, pipeline(graph, costs))

    return cpu_seconds(once)


def warm_plan() -> float:
    """Evaluate one plan whose schedule is compiled."""
    graph, costs = compiled_schedule(*PP16), random_costs(PP16[1], PP16[3])
    return cpu_seconds(lambda: step_end(graph, costs, pipeline(graph, costs)))


def actions_per_second(shape: tuple[str, int, int, int]) -> float:
    """Tier C for one plan."""
    name, pp, m, v = shape
    schedule, costs = build_schedule(name, pp=pp, num_microbatches=m, v=v), random_costs(pp, v)
    count = sum(map(len, schedule.ranks))
    return count / cpu_seconds(lambda: simulate_events(schedule, costs))


def late_steps(shape: tuple[str, int, int, int]) -> float:
    """1,000 steps of pp x 128 x 8 = 16,384 ranks that differ in all ways; and why they are late."""
    graph, costs = compiled_schedule(*shape), random_costs(shape[1], shape[3])
    ranks, jitter = RankGrid(pp=shape[1], groups=128, members=8), Jitter()
    pipelines = ReplicaPipelines.alike(graph, costs, ranks.groups)
    study = Study(pipelines=pipelines, ranks=ranks, steps=1000, seed=0)
    base = float(step_end(graph, costs, pipeline(graph, costs)).updated[0])

    def once() -> None:
        study.losses(jitter, study.times(jitter))
        study.alone(jitter, base)

    return cpu_seconds(once, runs=1)


def folding() -> float:
    """Classes of 16,384 ranks of which one is slow."""
    links = mesh_links(16, 128, 8)
    colours = [(rank // 1024, rank == 5000) for rank in range(16384)]
    return cpu_seconds(lambda: fold(colours, *links), runs=3)


def asynchronous(workers: int) -> float:
    """1,000 updates of each worker at one server that none saturates, and their ages."""
    slow = np.random.default_rng(0).normal(1.0, 0.02, size=(1000, workers))
    program, seconds = server(workers, 1000), prices([1.0] * workers, 0.5 / workers)
    return cpu_seconds(lambda: staleness(run_rounds(program, seconds, slow=slow)), runs=1)


def engines() -> Iterator[Benchmark]:
    """All rows of this file."""
    yield Benchmark(
        name="tier B, PP8 m32, batch of 1,024",
        demand=200_000,
        unit="plans/s",
        measure=lambda: plans_per_second(PP8, 1024),
    )
    for batch in (64, 128, 256):
        yield Benchmark(
            name=f"tier B, PP16 v4 m128, batch of {batch}",
            demand=6_000,
            unit="plans/s",
            measure=lambda batch=batch: plans_per_second(PP16, batch),  # type: ignore[misc]
        )
    yield Benchmark(
        name="tier B, one plan of 16,384 actions, cold", demand=0.1, unit="s", measure=cold_plan
    )
    yield Benchmark(
        name="tier B, the same, schedule compiled", demand=0.005, unit="s", measure=warm_plan
    )
    for label, shape in (("PP8 m32", PP8), ("PP16 v4 m128", PP16)):
        yield Benchmark(
            name=f"tier C, {label}",
            demand=150_000,
            unit="actions/s",
            measure=lambda shape=shape: actions_per_second(shape),  # type: ignore[misc]
        )
    for label, shape in (
        ("PP16 m64", ("1f1b", 16, 64, 1)),
        ("PP16 v4 m64", ("interleaved_1f1b", 16, 64, 4)),
    ):
        yield Benchmark(
            name=f"jitter, 1,000 steps of 16,384 ranks, {label}",
            demand=180,
            unit="s",
            measure=lambda shape=shape: late_steps(shape),  # type: ignore[misc]
        )
    yield Benchmark(name="folding, 16,384 ranks", demand=2.0, unit="s", measure=folding)
    for workers, demand in ((64, 2.0), (1024, 60.0)):
        yield Benchmark(
            name=f"asynchronous server, {workers:,} workers x 1,000 updates",
            demand=demand,
            unit="s",
            measure=lambda workers=workers: asynchronous(workers),  # type: ignore[misc]
        )
