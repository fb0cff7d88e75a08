"""Every rule's message, and the plans that are just legal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan import CpCommType
from parsim.plan.rules.violation import check_plan, violation
from tests.parsim.plan.rules.broken import LEGAL

BROKEN: dict[str, tuple[dict[str, object], str]] = {
    **{
        name: ({name: 0}, f"{name}=0 must be at least 1")
        for name in (
            "tp",
            "pp",
            "dp_replicate",
            "dp_shard",
            "cp",
            "ep",
            "microbatch_size",
            "num_microbatches",
            "v",
        )
    },
    "context": (
        {"cp": 4, "tp": 1, "sequence_parallel": False},
        "cp=4 cuts seq_len=4100 into 8 equal pieces, which it cannot be cut into; use a seq_len "
        "that is a multiple of 8, or a smaller cp",
    ),
    "context and sequence": (
        {"cp": 2},
        "cp=2 cuts seq_len=4100 into 8 equal pieces, which it cannot be cut into; use a seq_len "
        "that is a multiple of 8, or a smaller cp",
    ),
    "heads of context ranks": (
        {
            "cp": 2,
            "tp": 8,
            "pp": 1,
            "dp_replicate": 1,
            "sequence_parallel": False,
            "cp_comm_type": CpCommType.A2A,
        },
        "cp_comm_type=a2a gives each rank the same number of heads, but tp=8 x cp=2 does not "
        "divide num_key_value_heads=8; allowed cp: 1, or cp_comm_type p2p or all_gather",
    ),
    "experts": ({"ep": 4}, "ep=4: llama3-8b has no experts; use ep=1"),
    "schedule": (
        {"schedule": "interleaved"},
        "schedule='interleaved' is unknown (did you mean 'interleaved_1f1b'?); nearest of 23: "
        "interleaved_1f1b, naive, chimera, pipedream, eager_1f1b (all of them: parsim catalog "
        "schedules)",
    ),
    "no pipeline to fill": (
        {"schedule": "zb_h1", "pp": 1, "dp_replicate": 4},
        "schedule='zb_h1' needs pp >= 2, but pp=1; use schedule='1f1b'",
    ),
    "a V of one chunk": (
        {"schedule": "zb_v", "pp": 2},
        "schedule='zb_v' has two chunks per rank, placed as a V, but v=1; use v=2",
    ),
    "two chunks without a V": (
        {"schedule": "zb_2p", "pp": 2, "v": 2},
        "schedule='zb_2p' has one chunk per rank, but v=2; use v=1",
    ),
    "precision": (
        {"precision": "fp9"},
        "precision='fp9' is unknown (did you mean 'fp8'?); allowed: fp32, tf32, bf16, fp16, "
        "bf16_amp, bf16_pure, fp16_amp, fp8, fp8_rowwise, mxfp8, nvfp4, mxfp4, fp8_amp",
    ),
    "no peak of 8 bit": (
        {"precision": "fp8"},
        "precision='fp8' has no peak on device a100-sxm-80gb; allowed: fp32, tf32, bf16, fp16, "
        "bf16_amp, bf16_pure, fp16_amp",
    ),
    "gradients": (
        {"gradient_precision": "sam"},
        "gradient_precision='sam' is unknown (did you mean 'same'?); allowed: fp32, same",
    ),
    "reduction": (
        {"reduce_precision": "bf16"},
        "reduce_precision='bf16' is unknown; allowed: fp32, same",
    ),
    "rank order": (
        {"rank_order": ("pp", "tp")},
        "rank_order=pp-tp must name each of pp, dp_replicate, dp_shard, cp, tp once, outermost "
        "first",
    ),
    "zero stage": ({"zero_stage": 4}, "zero_stage=4 is unknown; allowed: 0, 1, 2, 3"),
    "nothing sharded": (
        {"dp_replicate": 1, "dp_shard": 2},
        "zero_stage=0 shards nothing, but dp_shard=2; use dp_replicate=2 or zero_stage 1, 2 or 3",
    ),
    "nothing to shard over": (
        {"zero_stage": 1},
        "zero_stage=1 has nothing to shard over with dp_shard=1; use zero_stage=0 or dp_shard > 1",
    ),
    "heads": (
        {"tp": 3},
        "tp=3 does not divide num_attention_heads=32; allowed: 1, 2, 4, 8, 16, 32",
    ),
    "sequence without tensor": (
        {"tp": 1},
        "sequence_parallel=true needs tp > 1; use sequence_parallel=false with tp=1",
    ),
    "sequence": (
        {"tp": 8},
        "sequence_parallel=true: tp=8 does not divide seq_len=4100; allowed: 1, 2, 4, 5, 10, 20, "
        "25, 41, 50, 82, 100, 164, 205, 410, 820",
    ),
    "chunks without interleaving": (
        {"v": 2},
        "v=2 needs schedule='interleaved_1f1b', but schedule='1f1b' has one chunk per rank; use "
        "v=1 or schedule='interleaved_1f1b'",
    ),
    "interleaving without chunks": (
        {"schedule": "interleaved_1f1b"},
        "schedule='interleaved_1f1b' needs pp >= 2 and v >= 2, but pp=2, v=1; use v=2, or "
        "schedule='1f1b'",
    ),
    "interleaved micro-batches": (
        {"schedule": "interleaved_1f1b", "v": 2, "num_microbatches": 5},
        "schedule='interleaved_1f1b': pp=2 does not divide num_microbatches=5; allowed: multiples "
        "of 2",
    ),
    "stages": (
        {"schedule": "interleaved_1f1b", "v": 18},
        "more stages than layers: pp=2 x v=18 = 36 stages for 32 layers, embedding, head; use "
        "pp x v <= 34",
    ),
    "length of the cut": (
        {"stage_layers": (32,)},
        "stage_layers has 1 entries, but pp=2 x v=1 needs 2; write as many, or leave it out",
    ),
    "sum of the cut": (
        {"stage_layers": (16, 17)},
        "stage_layers sums to 33, but the model has 32 layers; entries must be >= 0 and sum to 32",
    ),
    "negative cut": (
        {"stage_layers": (-1, 33)},
        "stage_layers sums to 32, but the model has 32 layers; entries must be >= 0 and sum to 32",
    ),
    "world": (
        {"dp_replicate": 3},
        "world size mismatch: pp=2 x dp=3 x cp=1 x tp=4 = 24, but the cluster has 16 devices; use "
        "dp=2",
    ),
    "world that no dp can mend": (
        {"pp": 3},
        "world size mismatch: pp=3 x dp=2 x cp=1 x tp=4 = 24, but the cluster has 16 devices; pp "
        "x cp x tp = 12 must divide 16",
    ),
    "too many actions": (
        {"num_microbatches": 250_001},
        "num_microbatches=250001 on 2 stages is a schedule of 1,000,004 actions; at most "
        "1,000,000 are simulated: use a larger microbatch_size, more replicas or a smaller global "
        "batch",
    ),
}


def test_the_plan_is_legal_before_it_is_broken(model: Model, cluster: Cluster) -> None:
    assert violation(LEGAL, model, cluster) is None
    check_plan(LEGAL, model, cluster)


@pytest.mark.parametrize("case", BROKEN)
def test_messages(model: Model, cluster: Cluster, case: str) -> None:
    changes, message = BROKEN[case]
    plan = replace(LEGAL, **changes)  # type: ignore[arg-type]
    assert violation(plan, model, cluster) == message
    with pytest.raises(PlanError) as caught:
        check_plan(plan, model, cluster)
    assert str(caught.value) == message


def test_a_precision_that_the_device_lacks(model: Model, cluster: Cluster) -> None:
    v100 = Cluster(system=load_catalog().system("dgx-1v"), num_nodes=2)
    assert violation(LEGAL, model, v100) == (
        "precision='bf16' has no peak on device v100-sxm-32gb; allowed: fp32, fp16, fp16_amp"
    )
