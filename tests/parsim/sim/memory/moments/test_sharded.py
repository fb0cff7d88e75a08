"""What travels under ZeRO-2 and 3, by hand for a small model on two CPU ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.sim.memory.moments.pipeline import Moment
from parsim.sim.memory.moments.sharded import Sharded, is_sharded
from tests.parsim.sim.memory.small import F, H, V, small_job

LAYER = 4.0 * (4 * H * H + 3 * H * F + 2 * H)
"""fp32 bytes of a layer: q k v and projection, gate up and down, two norms."""
TABLE, HEAD = 4.0 * V * H, 4.0 * (V * H + H)
DOWN = 4.0 * F * H
"""The last parameter of a layer."""
JOB = small_job(3)
FIRST = Moment((1,), (0,), 1, (False,), "gather", (False,))
LATER = FIRST._replace(with_gradients=(True,))


def sharded(stage: int, job: Job = JOB) -> Sharded:
    table = PlanTable.of([Plan(dp_shard=2, zero_stage=stage, num_microbatches=2, precision="fp32")])
    return Sharded.of(job, table, LayerTable.of(job, table))


@pytest.mark.parametrize(
    ("what", "gathered", "gradients"),
    [
        ("gather", TABLE + HEAD + 3 * LAYER, HEAD),
        ("below", TABLE + HEAD + 3 * LAYER, HEAD + LAYER),
        ("scatter", TABLE + HEAD + LAYER, HEAD + 2.5 * LAYER + DOWN),
        ("gather_ends", 2 * (TABLE + HEAD), 0.0),
        ("loss", 0.0, 0.0),
    ],
)
def test_zero_3_by_hand(what: str, gathered: float, gradients: float) -> None:
    travelling = sharded(3).at(FIRST._replace(what=what))
    assert (travelling.gathered[0], travelling.gradients[0]) == (gathered, gradients)


def test_what_the_ends_were_scattered_from_stays_until_the_next_layer() -> None:
    three = sharded(3)
    assert three.at(LATER).gradients[0] == HEAD + TABLE + HEAD
    assert three.at(LATER._replace(what="below")).gradients[0] == HEAD + LAYER


def test_nccl_makes_no_copies() -> None:
    travelling = sharded(3, replace(JOB, software=software("executor-cuda"))).at(FIRST)
    assert travelling.gathered[0] == TABLE + HEAD + 2 * LAYER


def test_the_last_backward_of_zero_2_lets_parameters_go() -> None:
    two, shards = sharded(2), (TABLE + HEAD + 3 * LAYER) / 2
    scatter = LATER._replace(what="scatter")
    assert two.at(scatter).gathered[0] == shards
    assert two.at(scatter._replace(resharding=True)).gathered[0] == shards - LAYER
    ends = LATER._replace(what="scatter_ends", resharding=True)
    assert two.at(ends).gathered[0] == shards - (TABLE + HEAD + 3 * LAYER)
    assert two.at(scatter).gone[0] > 0.0 == two.at(LATER).gone[0]


def test_a_pipeline_and_zero_1_have_nothing_of_it() -> None:
    plans = [Plan(dp_shard=2, zero_stage=1), Plan(dp_shard=2, zero_stage=3)]
    table = PlanTable.of(plans)
    travelling = Sharded.of(JOB, table, LayerTable.of(JOB, table)).at(FIRST)
    assert is_sharded(table).tolist() == [False, True]
    assert (travelling.gathered[0], travelling.gradients[0], travelling.gone[0]) == (0.0, 0.0, 0.0)
    assert not is_sharded(PlanTable.of([Plan(pp=2, dp_shard=2, zero_stage=3)])).any()
