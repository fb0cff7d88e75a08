"""Searches on unequal nodes against every placement simulated by itself, in random scenarios."""

from __future__ import annotations

import random

import numpy as np
import pytest

from parsim.cluster.groups import rank_groups
from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.rules.violation import violation
from parsim.planner import search
from parsim.planner.bounds.cases import price_layers
from parsim.planner.mixed.orders import orders
from parsim.planner.mixed.placements import Speeds, placements
from parsim.planner.space import enumerate_plans
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.space.axes import SETTINGS
from tests.parsim.sim.mixed_clusters import cluster_of, job_on, node, slower

FAST = ("dgx-h100", "dgx-a100")
SLOW = ("dgx-a100", "dgx-1v", "rtx-4090-node")
STACKS = ("generic", "megatron-te-2025", "torchtitan")
SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "looped_bfs", "hanayo")


def scenario(seed: int, *, small: bool) -> tuple[Job, PlanSpace]:
    """A short model on two kinds of node, and a part of its space."""
    rng = random.Random(seed)
    names = rng.choice(FAST), rng.choice(SLOW)
    kinds = {
        name: (node(system), 1 if small else rng.choice((1, 2)))
        for name, system in zip("ab", names, strict=True)
    }
    if names[0] == names[1]:
        kinds["b"] = (slower(kinds["b"][0], 1.5), kinds["b"][1])
    job = job_on(cluster_of(**kinds), rng.choice(STACKS), rng.choice((4, 6)))
    half = all("bf16" in device.peak_flops for device in job.cluster.devices)
    space = PlanSpace(
        global_batch_size=rng.choice((8, 12)),
        tp=(1,) if small else (1, 2),
        cp=(1,),
        microbatch_size=(1,),
        schedule=tuple(rng.sample(SCHEDULES, 1 if small else 2)),
        zero_stage=(rng.choice((0, 1, 3)),),
        recompute=(rng.choice(tuple(Recompute)),),
        common=Plan(precision="bf16" if half else "fp16", overlap_p2p=rng.random() < 0.5),
    )
    name = rng.choice(sorted(set(SETTINGS) - {"etp"}))
    return job, space.with_axes({name: SETTINGS[name].every(job)})


def all_placed(job: Job, space: PlanSpace) -> list[Plan]:
    """Every placement of every legal plan."""
    table = enumerate_plans(job, space).table
    if table is None:
        return []
    layers = [price_layers(job.on(system), table) for system in job.cluster.systems]
    laid = {order: rank_groups(job.cluster, order) for order in orders(job.cluster)}
    usable = np.array([job.software.usable_memory(device) for device in job.cluster.devices])
    return [
        plan
        for row in range(len(table))
        for plan, _ in placements(table.plan(row), laid, job.model, Speeds.of(layers, row), usable)
        if violation(plan, job.model, job.cluster) is None
    ]


def check(seed: int, *, small: bool) -> None:
    """The best of a scenario are brute force's, but for moves from the best that are faster yet."""
    job, space = scenario(seed, small=small)
    steps = {}
    for plan in all_placed(job, space):
        prediction = simulate(job, plan, timeline=False)
        if prediction.fit is Fit.FITS:
            steps[plan] = prediction.step_time
    if not steps:
        return
    result = search(job, space, top=5)
    placed = [entry for entry in result.plans if entry.plan in steps]
    for entry in placed:
        assert entry.step_time == pytest.approx(steps[entry.plan], rel=1e-12)
    best = sorted(steps.values())[: len(placed)]
    assert [entry.step_time for entry in placed] == pytest.approx(best, rel=1e-12)
    assert result.plans[0].step_time <= min(steps.values()) * (1.0 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_on_unequal_nodes_finds_what_brute_force_does(seed: int) -> None:
    check(seed, small=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 103))
def test_the_search_on_unequal_nodes_does_so_in_many_scenarios(seed: int) -> None:
    check(seed, small=False)
