"""Ranks of a plan are numbered by its order of axes, and counted by their degrees."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest

from parsim.plan import AXES, RANK_ORDER, Plan


def test_the_default_order_keeps_tensor_neighbours_together() -> None:
    plan = Plan(pp=2, dp_replicate=3, dp_shard=5, cp=7, tp=11)
    assert plan.rank_order == RANK_ORDER == ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    assert [plan.stride(axis) for axis in AXES] == [3 * 5 * 7 * 11, 5 * 7 * 11, 7 * 11, 11, 1]


@pytest.mark.parametrize("order", list(permutations(AXES)), ids="-".join)
def test_ranks_of_any_order_number_the_world(order: tuple[str, ...]) -> None:
    plan = Plan(pp=2, dp_replicate=3, dp_shard=1, cp=2, tp=2, rank_order=order)
    shape = [plan.degree(axis) for axis in order]
    coordinates = np.indices(shape).reshape(len(order), -1)
    ranks = sum(
        plan.stride(axis) * coordinate for axis, coordinate in zip(order, coordinates, strict=True)
    )
    assert np.array_equal(ranks, np.arange(plan.world_size))
    assert plan.world_size == prod(shape)


def test_derived_numbers() -> None:
    plan = Plan(pp=4, v=3, tp=2, dp_replicate=2, dp_shard=5, microbatch_size=3, num_microbatches=8)
    assert (plan.dp, plan.num_stages, plan.world_size) == (10, 12, 80)
    assert plan.global_batch_size == 3 * 8 * 10
