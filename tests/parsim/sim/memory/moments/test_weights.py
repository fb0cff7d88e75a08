"""What a W takes and lets go, by hand for a small Llama on two pipeline ranks."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.plan import Plan, PlanTable
from parsim.sim.memory.moments.weights import WeightPass
from tests.parsim.sim.memory.small import F, H, T, V, small_job

JOB = small_job(4)
VECTOR, WIDE = 4 * T * H, 4 * T * F
"""Bytes of a micro-batch's hidden states, and inside the MLP."""
SQUARE, OBLONG = 4 * H * H, 4 * H * F
GONE = (
    2 * VECTOR + (3 * VECTOR + VECTOR) + VECTOR + 2 * VECTOR + (2 * WIDE + VECTOR) + VECTOR + WIDE
)
"""What a layer lets go: norm; q, k, v; projection; norm; gate and up; down."""


def weight_pass(job: Job = JOB, **plan: object) -> WeightPass:
    plan = {"pp": 2, "num_microbatches": 4, "precision": "fp32", "schedule": "zb_1p", **plan}
    table = PlanTable.of([Plan(**plan)])  # type: ignore[arg-type]
    counts: Array = layer_counts(job.model, stage_cut(job, table))
    return WeightPass.of(job, table, counts)


def test_a_layer_is_highest_at_its_second_widest_matrix() -> None:
    """At up, gate's gradient still held: two matrices, less all that is gone before."""
    before = 2 * VECTOR + 4 * VECTOR + VECTOR + 2 * VECTOR + WIDE
    assert weight_pass().highest[0] == 2 * OBLONG - before


def test_what_is_gone_and_made_is_that_of_the_layers_of_a_stage() -> None:
    stages = weight_pass()
    assert stages.gone[:, 0].tolist() == [2 * GONE, 2 * GONE + 2 * VECTOR + VECTOR]
    layer = 4 * SQUARE + 3 * OBLONG
    assert stages.made[:, 0].tolist() == [2 * layer, 2 * layer + 4 * V * H]


def test_many_words_are_highest_when_all_layers_are_gone() -> None:
    job = small_job(4, words=100 * V)
    gone = 2 * GONE + 2 * VECTOR
    assert weight_pass(job).highest[1] == 4 * 100 * V * H - gone


def test_first_gradients_stay_and_buckets_take_all_at_the_end() -> None:
    stages = weight_pass()
    plain, bucketed = (np.array([flag]) for flag in (False, True))
    assert stages.above(first=False, bucketed=plain) == stages.highest.max()
    assert stages.above(first=True, bucketed=plain) == -stages.gone.min()
    heaped = (stages.made - stages.gone).max()
    assert stages.above(first=True, bucketed=bucketed) == max(heaped, stages.highest.max())


def test_tensor_parallel_ranks_have_their_share() -> None:
    whole, half = weight_pass(), weight_pass(tp=2)
    assert half.made[0, 0] == whole.made[0, 0] / 2
