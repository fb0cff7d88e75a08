"""Blocks of late steps: tier B where nothing is late, planes with speeds, every rank elsewhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.cost.jitter import Jitter
from parsim.cost.step.costs import StepCosts
from parsim.schedule import build_schedule
from parsim.sim.lateness.draws import Block
from parsim.sim.lateness.late_replicas import late_steps
from parsim.sim.lateness.pipelines import RankGrid, ReplicaPipelines, speeds
from parsim.sim.recurrence.evaluate import pipeline
from parsim.sim.recurrence.maxplus import step_end
from parsim.sim.step.compiled_schedule import CompiledSchedule, compile_schedule
from tests.parsim.sim.cases import make_costs, random_case
from tests.parsim.sim.lateness.late_ranks import RecordedBlock, step_time
from tests.parsim.sim.recurrence.planes import run_planes

STILL = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0)


def block_of(
    graph: CompiledSchedule,
    ranks: RankGrid,
    jitter: Jitter,
    steps: int = 3,
    kind: type[Block] = Block,
) -> Block:
    return kind(
        graph,
        ranks,
        jitter,
        np.arange(steps),
        seed=5,
        number=0,
        one_by_one=frozenset(range(ranks.pp)),
    )


def run(graph: CompiledSchedule, costs: StepCosts, ranks: RankGrid, block: Block) -> Array:
    """Steps of replicas that are alike."""
    return late_steps(ReplicaPipelines.alike(graph, costs, ranks.groups), ranks, [block])


@pytest.mark.parametrize("seed", range(60))
def test_nothing_late_is_tier_b_bit_for_bit(seed: int) -> None:
    schedule, costs = random_case(seed, dyadic=False)
    graph = compile_schedule(schedule)
    ranks = RankGrid(pp=schedule.pp, groups=4, members=3, meet_forward=2, meet_backward=4)
    result = run(graph, costs, ranks, block_of(graph, ranks, STILL))
    assert (result == step_end(graph, costs, pipeline(graph, costs)).updated[0]).all()


@pytest.mark.parametrize("seed", range(40))
def test_speeds_alone_are_the_planes_of_each_cluster(seed: int) -> None:
    schedule, costs = random_case(seed, dyadic=False)
    graph = compile_schedule(schedule)
    jitter = Jitter(speed_spread=0.1, noise=0.0, hiccups=0.0, slow_ranks=((0, 1.5),))
    ranks = RankGrid(pp=schedule.pp, groups=4, members=3, slow=((0, 1, 2, 1.5),))
    result = run(graph, costs, ranks, block_of(graph, ranks, jitter))
    for cluster in range(3):
        slowdown = np.exp(speeds(ranks, jitter, 5, cluster)).transpose(0, 2, 1)
        expected = run_planes(graph, costs, slowdown).step_time
        assert result[cluster] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_noise_and_hiccups_are_a_simulation_of_every_rank(seed: int) -> None:
    schedule, costs = random_case(seed, dyadic=False)
    graph, rng = compile_schedule(schedule), random.Random(seed)
    jitter = Jitter(speed_spread=0.05, noise=0.1, hiccups=2.0, hiccup_length=0.5)
    shards = rng.choice((1, 2))
    ranks = RankGrid(
        pp=schedule.pp,
        groups=4,
        members=rng.randint(1, 3),
        meet_forward=rng.choice((1, shards)),
        meet_backward=shards,
    )
    block = block_of(graph, ranks, jitter, 2, RecordedBlock)
    assert isinstance(block, RecordedBlock)
    block.record()
    result = run(graph, costs, ranks, block)
    for step in range(2):
        expected = step_time(graph, costs, ranks, block, step)
        assert result[step] == pytest.approx(expected, rel=1e-6)  # draws are single precision


def even_case(pp: int = 4, m: int = 8) -> tuple[CompiledSchedule, StepCosts]:
    graph = compile_schedule(build_schedule("1f1b", pp=pp, num_microbatches=m))
    return graph, make_costs(pp, pp, forward=1.0, backward=2.0, exposed=0.25, hop=0.03)


def test_one_action_at_a_time_has_the_closed_form() -> None:
    graph, costs = even_case(pp=1, m=2)
    ranks = RankGrid(pp=1, groups=1, members=1, slow=((0, 0, 0, 1.2),))
    jitter = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0, slow_ranks=((0, 1.2),))
    result = run(graph, costs, ranks, block_of(graph, ranks, jitter, 1))
    assert result[0] == pytest.approx(2 * (1 + 2) * (0.25 + 0.75 * 1.2), rel=1e-12)


def test_exposed_communication_keeps_its_length() -> None:
    graph = compile_schedule(build_schedule("1f1b", pp=2, num_microbatches=4))
    costs = make_costs(2, 2, forward=1.0, backward=2.0, exposed=1.0)
    ranks = RankGrid(pp=2, groups=3, members=2)
    still = run(graph, costs, ranks, block_of(graph, ranks, STILL))
    late = run(graph, costs, ranks, block_of(graph, ranks, Jitter(hiccups=0.0)))
    assert late == pytest.approx(still, rel=1e-12)


def test_replicas_that_share_shards_wait_in_every_action() -> None:
    graph, costs = even_case(pp=1)
    jitter = Jitter(speed_spread=0.0, noise=0.05, hiccups=0.0)
    alone = RankGrid(pp=1, groups=64, members=1)
    shared = RankGrid(pp=1, groups=64, members=1, meet_forward=64, meet_backward=64)
    apart = run(graph, costs, alone, block_of(graph, alone, jitter, 20)).mean()
    together = run(graph, costs, shared, block_of(graph, shared, jitter, 20)).mean()
    # largest of 64 draws: 2.37 sd in each action against about once over the root of 16 actions
    assert 24 < apart < 24 * (1 + 0.75 * 0.05 * 1.3)
    assert together == pytest.approx(24 * (1 + 0.75 * 0.05 * 2.37), rel=0.01)
