"""Stages on ranks as the user places them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.schedule import Schedule, schedule_of
from parsim.sim import simulate
from parsim.sim.step.schedule_costs import is_looped, on_ranks
from tests.parsim.sim.step.planned import evaluated, with_actions


def placed(schedule: Schedule, rank_of: dict[int, int]) -> Schedule:
    """These rows on other ranks."""
    order = sorted(rank_of, key=rank_of.__getitem__)
    return Schedule.from_ranks((schedule.ranks[rank] for rank in order), name="placed")


VEE = (
    "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n"
    "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n"
)  # fmt: skip


def test_a_looped_placement_is_left_to_cost() -> None:
    looped = Schedule.from_csv("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n")
    assert is_looped(looped)
    for text in (VEE, "0F0,0B0\n1F0,2F0,2B0,1B0\n", "1F0,1B0\n0F0,0B0\n"):
        assert not is_looped(Schedule.from_csv(text))


def test_stages_are_summed_on_their_ranks() -> None:
    stages = np.array([[1.0], [2.0], [4.0], [8.0]])
    assert on_ranks(stages, Schedule.from_csv(VEE))[:, 0].tolist() == [9.0, 6.0]


def test_a_vee_sends_nothing_where_both_stages_are_on_one_rank(job: Job) -> None:
    base = Plan(dp_replicate=4, tp=2)
    result = evaluated(job, with_actions(base, Schedule.from_csv(VEE)))
    twice = replace(base, pp=2, v=2, schedule="interleaved_1f1b", num_microbatches=2)
    looped = evaluated(job, twice)
    hop = result.step.costs.hop[:, 0].tolist()
    assert hop == [looped.step.costs.hop[0, 0], 0.0, looped.step.costs.hop[0, 0], 0.0]
    assert result.step.costs.parameters.tolist() == looped.step.costs.parameters.tolist()
    assert job.model.tied_embeddings
    assert (result.step.costs.tied[0], looped.step.costs.tied[0] > 0) == (0.0, True)
    # rank 0 has embedding and head, so its optimizer takes longer than either's in the loop
    assert result.step.costs.optimizer[0, 0] > looped.step.costs.optimizer.max()
    assert result.step.costs.optimizer[1, 0] < looped.step.costs.optimizer.min()
    assert result.memory_of(0).logits[:, 0].tolist() == [looped.memory_of(0).logits[1, 0], 0.0]


def test_messages_between_any_two_ranks_cost_what_they_cross(job: Job) -> None:
    """Four ranks of 4 devices on two nodes of 8: ranks 0 and 1, and 2 and 3, share a node."""
    base = Plan(pp=4, tp=4, num_microbatches=1, schedule="gpipe")
    inside, across, _, _ = evaluated(job, base).step.costs.hop[:, 0].tolist()
    assert 0 < inside < across
    other = placed(schedule_of(base), {0: 0, 1: 2, 2: 3, 3: 1})
    assert other.stage_rank == (0, 2, 3, 1)
    hop = evaluated(job, with_actions(base, other)).step.costs.hop[:, 0].tolist()
    assert hop == [across, inside, across, 0.0]


def test_inside_a_node_it_does_not_matter_which_rank_is_which(job: Job) -> None:
    first = replace(job, cluster=replace(job.cluster, num_nodes=1))
    base = Plan(pp=4, tp=2, num_microbatches=6)
    named = simulate(first, base)
    for rank_of in ({0: 3, 1: 2, 2: 1, 3: 0}, {0: 2, 1: 0, 2: 3, 3: 1}):
        prediction = simulate(
            first, with_actions(base, placed(schedule_of(base), rank_of)), tier="events"
        )
        assert prediction.step_time == named.step_time
        moved = [prediction.peak_allocated[rank_of[rank]] for rank in range(4)]
        assert moved == list(named.peak_allocated)
