"""A plan in words names what is rare only where there is any, and so does its document."""

from __future__ import annotations

from dataclasses import fields

import pytest

from parsim.plan import RANK_ORDER, CpCommType, Plan, Recompute
from parsim.plan.strategies import LocalSGD


def test_a_plan_as_a_document() -> None:
    document = Plan(recompute=Recompute.SELECTIVE, stage_layers=(1, 2), pp=2).to_json()
    assert document["recompute"] == "selective"
    assert document["stage_layers"] == [1, 2]
    assert document["rank_order"] == list(RANK_ORDER)
    rare = {"actions", "action_times", "node_order", "replica_microbatches", "etp"}
    rare |= {"offload_layers", "offload_modules", "recompute_layers"}
    rare |= {"recompute_modules", "bucket_bytes", "strategy", "sync_batch_norm", "stages"}
    rare |= {"cp_comm_type", "optimizer_offload"}
    named = {f.name for f in fields(Plan)} - rare | {"dp", "world_size"}
    assert set(document) == named
    assert set(Plan(schedule="a.csv", actions="0F0,0B0").to_json()) == named | {"actions"}


@pytest.mark.parametrize(
    ("plan", "label"),
    [
        (Plan(), "tp1 pp1 dp1 mb1 m1 no-pipeline"),
        (Plan(pp=2, num_microbatches=4), "tp1 pp2 dp1 mb1 m4 1f1b"),
        (
            Plan(
                tp=8,
                pp=8,
                dp_shard=2,
                dp_replicate=3,
                v=2,
                schedule="interleaved_1f1b",
                num_microbatches=16,
                zero_stage=1,
                sequence_parallel=True,
                recompute=Recompute.FULL,
            ),
            "tp8 pp8 dp6 mb1 m16 interleaved_1f1b v2 zero1 shard2 sp recompute-full",
        ),
    ],
)
def test_labels(plan: Plan, label: str) -> None:
    assert plan.label() == label


def test_a_label_has_all_that_is_rare_in_one_order() -> None:
    plan = Plan(
        tp=2,
        pp=2,
        cp=4,
        cp_comm_type=CpCommType.A2A,
        ep=2,
        etp=2,
        sync_batch_norm=True,
        recompute_modules=("mlp",),
        recompute_layers=3,
        offload_layers=2,
        offload_modules=("core_attn",),
        optimizer_offload=True,
        strategy=LocalSGD(every=4),
        replica_microbatches=(12, 4),
        node_order=("fast", "slow"),
        stage_layers=(5, 7),
    )
    assert plan.label() == (
        "tp2 pp2 dp1 cp4 a2a ep2 etp2 mb1 m12/4 1f1b sync-bn recompute-mlp recompute3 offload2 "
        "offload-core_attn optimizer-on-host local_sgd every=4 on fast+slow by pp-cp cut 5-7"
    )
