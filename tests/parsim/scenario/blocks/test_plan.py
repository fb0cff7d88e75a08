"""What the plan and the search block make."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from parsim.cluster.hardware import IntraNode, Network
from parsim.plan import CpCommType, Plan, PlanSpace, Recompute
from parsim.scenario.schema.cluster import IntraBlock, NetworkBlock
from parsim.scenario.schema.plan import PlanBlock, SearchBlock
from parsim.space.axes import SETTINGS
from tests.parsim.scenario.blocks.written import load


def plan_of(folder: Path, **blocks: Any) -> Plan:
    plan = load(folder, **blocks).plan
    assert plan is not None
    return plan


def space_of(folder: Path, **blocks: Any) -> PlanSpace:
    space = load(folder, **blocks).space
    assert space is not None
    return space


def test_an_empty_plan_is_data_parallel(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, plan={})
    assert (plan.dp_replicate, plan.dp_shard, plan.num_microbatches) == (8, 1, 2)


@pytest.mark.parametrize(
    ("written", "replicate", "shard"),
    [
        ({"dp": 8}, 8, 1),
        ({"tp": 2, "dp": 4}, 4, 1),
        ({"tp": 2, "pp": 2}, 2, 1),
        ({"zero_stage": 3, "dp": 8}, 1, 8),
        ({"zero_stage": 1}, 1, 8),
        ({"zero_stage": 3, "dp_shard": 4}, 2, 4),
        ({"zero_stage": 3, "dp_replicate": 4}, 4, 2),
        ({"zero_stage": 3, "dp_replicate": 2, "dp_shard": 4}, 2, 4),
        ({"dp_replicate": 8}, 8, 1),
    ],
)
def test_the_data_parallel_degrees(
    tmp_path: Path, written: dict[str, int], replicate: int, shard: int
) -> None:
    plan = plan_of(tmp_path, plan=written)
    assert (plan.dp_replicate, plan.dp_shard) == (replicate, shard)


def test_every_field_of_a_plan_can_be_written(tmp_path: Path) -> None:
    written: dict[str, Any] = {
        "tp": 2,
        "pp": 2,
        "dp_replicate": 1,
        "dp_shard": 2,
        "cp": 1,
        "cp_comm_type": "all_gather",
        "ep": 1,
        "etp": 1,
        "microbatch_size": 2,
        "num_microbatches": 4,
        "offload_layers": 2,
        "offload_modules": ["core_attn"],
        "optimizer_offload": True,
        "recompute_layers": 0,
        "schedule": "interleaved_1f1b",
        "v": 2,
        "action_times": [1.0, 0.9, 0.8, 0.05, 0.5],
        "stage_layers": [2, 4, 4, 2],
        "zero_stage": 1,
        "sequence_parallel": True,
        "recompute": "selective",
        "recompute_modules": ["layernorm"],
        "precision": "fp16",
        "gradient_precision": "same",
        "reduce_precision": "same",
        "bucket_size": "25MB",
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "overlap_p2p": False,
        "scatter_p2p": True,
        "rank_order": ["dp_replicate", "dp_shard", "pp", "cp", "tp"],
        "sync_batch_norm": True,
    }
    renamed = {"bucket_size": "bucket_bytes"}
    values = {renamed.get(key, key): value for key, value in written.items()}
    values["action_times"] = (1.0, 0.9, 0.8, 0.05, 0.5)
    values |= {"stage_layers": (2, 4, 4, 2), "recompute": Recompute.SELECTIVE, "bucket_bytes": 25e6}
    values |= {"offload_modules": ("core_attn",), "cp_comm_type": CpCommType.ALL_GATHER}
    values |= {"rank_order": tuple(written["rank_order"]), "recompute_modules": ("layernorm",)}
    elsewhere = {"actions", "node_order", "replica_microbatches"}  # from a file; test_mixed.py
    elsewhere |= {"strategy", "stages"}  # test_plan.py, test_stages.py
    assert set(values) == {field.name for field in fields(Plan)} - elsewhere
    assert plan_of(tmp_path, plan=written) == Plan(**values)


def test_the_plan_block_knows_every_field_of_a_plan() -> None:
    names = {field.name for field in fields(Plan)} - {"bucket_bytes", "actions"}
    assert set(PlanBlock.model_fields) == names | {"bucket_size", "dp"}


def test_an_empty_search_is_every_plan(tmp_path: Path) -> None:
    space = space_of(tmp_path, plan=None, search={})
    common = Plan(overlap_p2p=True)  # as generic software does
    assert space == PlanSpace(global_batch_size=16, common=common)


def test_a_space_with_values(tmp_path: Path) -> None:
    written = {
        "tp": [1, 2],
        "pp": 2,
        "v": [1],
        "microbatch_size": 4,
        "schedule": "1f1b",
        "zero_stage": [0, 1],
        "recompute": ["none", "full"],
        "sequence_parallel": True,
        "memory_margin": 0.1,
        "common": {"bucket_size": "40MB"},
    }
    assert space_of(tmp_path, search=written) == PlanSpace(
        global_batch_size=16,
        tp=(1, 2),
        pp=(2,),
        v=(1,),
        microbatch_size=(4,),
        schedule=("1f1b",),
        zero_stage=(0, 1),
        recompute=(Recompute.NONE, Recompute.FULL),
        sequence_parallel=(True,),
        memory_margin=0.1,
        common=Plan(bucket_bytes=40e6, overlap_p2p=True),
    )


def test_the_search_block_knows_every_field_of_a_space() -> None:
    names = {field.name for field in fields(PlanSpace)} - {"global_batch_size", "varied"}
    assert set(SearchBlock.model_fields) == names | {"space", *SETTINGS}


def test_every_link_can_be_overridden() -> None:
    assert set(NetworkBlock.model_fields) == {field.name for field in fields(Network)}
    assert set(IntraBlock.model_fields) == {field.name for field in fields(IntraNode)}


def test_a_search_has_the_precision_of_the_training(tmp_path: Path) -> None:
    training = {"global_batch_size": 16, "precision": "fp16"}
    assert space_of(tmp_path, search={}, training=training).common.precision == "fp16"
