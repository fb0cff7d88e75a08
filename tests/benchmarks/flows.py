"""Speed of shared links: the flow engine by both engines, and whole steps with contention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np

from parsim.fitting.reports.rail_tree import capacities, paths
from parsim.sim.links.fair_share import Flows
from parsim.sim.links.flows import Carried, Traffic, carry_by_numpy, carry_compiled
from tests.benchmarks.measure import Benchmark, NotRun, cpu_seconds, process_seconds

GPT3 = "scenarios/gpt3-175b-dgx-a100.yaml"
LARGE = (
    "cluster.nodes=2048",
    "plan.pp=16",
    "plan.dp=128",
    "plan.v=1",
    "plan.schedule=1f1b",
    "training.global_batch_size=4096",
)
"""16,384 devices: 32 micro-batches over 16 stages."""


def traffic(flows: int, rounds: int) -> Traffic:
    """So many flows under way over the rail-optimised tree; when one ends, another starts."""
    count = flows * rounds
    return Traffic.of(
        Flows.of(paths(count, seed=flows), capacities()),
        np.random.default_rng(flows).uniform(1e9, 2e9, count),
        after=np.concatenate([np.full(flows, -1), np.arange(count - flows)]),
    )


def numpy_events(flows: int) -> float:
    """Starts and ends of flows a second, by numpy."""
    return _events(traffic(flows, 4), carry_by_numpy)


def numba_events(flows: int) -> float:
    """Max-min rates, compiled."""
    if find_spec("numba") is None:
        raise NotRun("numba is not installed")
    from parsim.sim.links import numba_flows

    def run(given: Traffic) -> Carried:
        return carry_compiled(given, numba_flows)

    given = traffic(flows, 4)
    run(given)  # compiles
    return _events(given, run)


def _events(given: Traffic, run: Callable[[Traffic], Carried]) -> float:
    """Rates found a second: a flow that ends and the one that starts then are one event."""
    solves = run(given).solves
    return solves / cpu_seconds(lambda: run(given), runs=3)


def flows() -> Iterator[Benchmark]:
    """All rows of this file."""
    for name, measure, demands in (
        ("numpy", numpy_events, {256: 700, 1024: 120}),
        ("numba", numba_events, {256: 15_000, 1024: 2_500}),
    ):
        for count, demand in demands.items():
            yield Benchmark(
                name=f"flows, {count:,} under way, {name}",
                demand=demand,
                unit="events/s",
                measure=lambda measure=measure, count=count: measure(count),  # type: ignore[misc]
            )
    for label, changes, demand in (("1,024", (), 10), ("16,384", LARGE, 30)):
        words = [word for change in changes for word in ("--set", change)]
        yield Benchmark(
            name=f"parsim simulate --contention, GPT-3 175B on {label} devices",
            demand=demand,
            unit="s",
            measure=lambda words=words: process_seconds(  # type: ignore[misc]
                "simulate", GPT3, "--contention", *words, runs=1
            ),
        )
