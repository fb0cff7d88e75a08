"""Choices of plan and cluster size: the front against brute force, objectives, limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.errors import InputError, NoFeasiblePlan
from parsim.plan import PlanSpace, Recompute
from parsim.planner.choice import ChoiceRequest, Choices, Limits, choose, node_counts
from parsim.planner.choice.choices import MEASURES, front_of, read_objective
from parsim.planner.equal.best_steps import SLOWEST
from parsim.planner.search import search, search_front
from parsim.training_run import TrainingGoal
from tests.parsim.planner.conftest import with_memory

GOAL = TrainingGoal(tokens=1e10, usd_per_device_hour=2.0)


@pytest.fixture(scope="module")
def narrow(space: PlanSpace) -> PlanSpace:
    """Enough sequences that more devices are faster."""
    return replace(
        space,
        global_batch_size=512,
        microbatch_size=(8,),
        cp=(1,),
        schedule=("1f1b",),
        zero_stage=(0, 3),
        recompute=(Recompute.NONE, Recompute.FULL),
    )


def choices(job: Job, space: PlanSpace, **asked: object) -> Choices:
    request = ChoiceRequest(**{"nodes": (1, 2, 4), **asked})  # type: ignore[arg-type]
    return choose(job, space, GOAL, request)


@pytest.mark.parametrize("memory", [80e9, 1.1e9])
def test_the_front_is_that_of_every_plan(job: Job, space: PlanSpace, memory: float) -> None:
    """Brute force: all plans that fit, simulated one by one; those none beats in both."""
    space = replace(space, schedule=("1f1b", "zb_h1"), cp=(1,), zero_stage=(0, 1, 3))
    small = with_memory(job, memory)
    every = [(r.step_time, r.peak_allocated) for r in search(small, space, top=100_000).plans]
    limit = SLOWEST * min(step for step, _ in every)
    kept = [point for point in every if point[0] <= limit]
    best = {p for p, on_front in zip(kept, front_of(kept), strict=True) if on_front}
    result = [(r.step_time, r.peak_allocated) for r in search_front(small, space).plans]
    assert result == sorted(best)


def test_front_of_points() -> None:
    assert front_of([(1, 3), (2, 2), (3, 1), (3, 3), (2, 2)]) == [True, True, True, False, True]


@pytest.mark.parametrize("objective", ["time", "cost", "memory"])
def test_the_first_is_the_least(job: Job, narrow: PlanSpace, objective: str) -> None:
    measure = MEASURES[read_objective(objective)]
    together = choices(job, narrow, objective=objective, top=3).choices
    alone = [
        choices(job, narrow, nodes=(n,), objective=objective, top=1).choices[0] for n in (1, 2, 4)
    ]
    assert [measure(choice) for choice in together] == sorted(map(measure, together))
    assert measure(together[0]) == min(map(measure, alone))


def test_the_fewest_devices_that_meet_a_deadline(job: Job, narrow: PlanSpace) -> None:
    days = [
        choices(job, narrow, nodes=(n,), top=1).choices[0].ranked.run.elapsed.value  # type: ignore[union-attr]
        for n in (1, 2, 4)
    ]
    assert days == sorted(days, reverse=True)
    deadline = Limits(deadline=(days[0] + days[1]) / 2)
    result = choices(job, narrow, objective="devices", limits=deadline)
    assert {choice.nodes for choice in result.choices} == {2}
    assert "more than the deadline of" in result.left_out[1]


def test_limits_that_nothing_keeps_to(job: Job, narrow: PlanSpace) -> None:
    with pytest.raises(NoFeasiblePlan, match="at the devices' highest peak rate the run alone"):
        choices(job, narrow, limits=Limits(deadline=1.0))
    with pytest.raises(NoFeasiblePlan, match=r"costs .* US dollars, more than 1$"):
        choices(job, narrow, limits=Limits(budget=1.0))


def test_what_a_run_needs_is_asked_for(job: Job, narrow: PlanSpace) -> None:
    request = ChoiceRequest(nodes=(1,), objective="cost")
    with pytest.raises(InputError, match=r"training\.tokens is not stated"):
        choose(job, narrow, TrainingGoal(), request)
    with pytest.raises(InputError, match="needs a deadline"):
        choose(job, narrow, GOAL, ChoiceRequest(nodes=(1,), objective="devices"))
    with pytest.raises(InputError, match=r"objective 'speed' is unknown"):
        read_objective("speed")
    alone = Cluster(system=replace(job.system, network=None), num_nodes=1)
    with pytest.raises(InputError, match="has no network"):
        choose(replace(job, cluster=alone), narrow, GOAL, ChoiceRequest(nodes=(1, 2)))


def test_sizes_to_try() -> None:
    class Sized:
        cluster = type("C", (), {"num_nodes": 12})

    assert node_counts(Sized()) == tuple(range(1, 13))  # type: ignore[arg-type]


def test_sizes_to_try_are_at_most_an_eighth_apart() -> None:
    class Sized:
        cluster = type("C", (), {"num_nodes": 1000})

    counts = node_counts(Sized())  # type: ignore[arg-type]
    assert (counts[0], counts[-1]) == (1, 1000)
    assert {96, 125, 200, 250, 500} <= {*counts}
    assert len(counts) < 80
    assert all(after <= max(before + 1, 1.125 * before) for before, after in pairwise(counts))
