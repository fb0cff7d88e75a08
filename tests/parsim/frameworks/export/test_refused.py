"""Plans that a framework cannot run, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parsim.cost.software import software
from parsim.errors import InputError, PlanError
from parsim.frameworks.export import TARGETS, export_plan
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import RANK_ORDER, CpCommType, Recompute
from parsim.scenario import Scenario, load_scenario
from tests.commands import LLAMA, ROOT
from tests.parsim.frameworks.export.exported import MIXTURE, planned

SHARDED = {"zero_stage": 1, "dp_shard": 16, "dp_replicate": 1}


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        ("megatron", {"schedule": "zb_v", "v": 2}, "schedule zb_v; it has 1f1b and interleaved"),
        ("megatron", {"zero_stage": 3, "dp_shard": 16, "dp_replicate": 1}, "zero_stage=3 with pp"),
        ("megatron", {"cp": 3}, "seq_len=2048 is not divisible by 2 x cp=6"),
        ("megatron", {"pp": 2}, "interleaving with pp=2 needs overlapped messages"),
        ("megatron", {"rank_order": RANK_ORDER[::-1]}, "rank_order=tp-cp"),
        ("torchtitan", {"pp": 1, "zero_stage": 1}, "zero_stage=1; it replicates"),
        ("torchtitan-0.2", {"pp": 1, "zero_stage": 1}, "zero_stage=1; it replicates"),
        ("torchtitan", {"zero_stage": 2}, "zero_stage=2 with pp=8; it replicates"),
        ("torchtitan-0.2", {"zero_stage": 3}, "zero_stage=3 with pp=8; it replicates"),
        ("torchtitan-0.2", {**SHARDED, "sequence_parallel": False}, "0.2.2 has no switch for it"),
        ("torchtitan", {}, "precision=bf16 with zero_stage=0; with tensor or pipeline"),
        ("torchtitan", {"precision": "fp32", "cp": 2}, "zero_stage=0 with cp=2; its FSDP shards"),
        ("torchtitan", {"schedule": "bpipe", "v": 1}, "schedule bpipe; it has gpipe"),
        ("torchtitan", {"precision": "fp16"}, "precision=fp16; it has bfloat16 and float32"),
        ("accelerate", {"precision": "nvfp4"}, "precision=nvfp4; its mixed_precision is"),
        ("csv", {"schedule": "bpipe", "v": 1}, "schedule bpipe; PyTorch has no actions that move"),
        ("torchtitan", {"schedule": "zb_h1", "v": 1}, "schedule zb_h1; it has gpipe"),
        ("deepspeed", {}, "schedule interleaved_1f1b; its pipelines have 1f1b"),
        ("deepspeed", {"schedule": "1f1b", "v": 1, "ep": 8}, "ep=8 with tp=8 excludes pp=8"),
        ("deepspeed", {"pp": 1, "ep": 8, "dp_replicate": 64, "cp": 2}, "ep=8 with .* cp=2"),
        ("deepspeed", {"pp": 1, "ep": 8, "etp": 2}, "etp=2; it splits no experts"),
        ("accelerate", {}, "pp=8; it has no pipelines of its own"),
        ("accelerate", {"pp": 1, "dp_replicate": 128}, "needs dp_shard above 1"),
        (
            "accelerate",
            {"pp": 1, "cp": 2, "dp_shard": 2, "cp_comm_type": CpCommType.A2A},
            "gathers keys and values or",
        ),
        ("torchtitan", {"cp": 2, "cp_comm_type": CpCommType.A2A}, "gathers keys and values or"),
        ("megatron", {"replica_microbatches": (96,) * 16}, "replicas on unlike nodes"),
        ("megatron", {"offload_layers": 2}, "--cpu-offloading forbids; name offload_modules"),
        (
            "megatron",
            {"optimizer_offload": True},
            "is the distributed optimizer's, use zero_stage=1",
        ),
        (
            "deepspeed",
            {"pp": 1, "v": 1, "schedule": "1f1b", "optimizer_offload": True},
            "offload_optimizer is for zero_stage 1, 2 or 3",
        ),
        ("torchtitan", {"optimizer_offload": True}, "which its files do not say; use megatron"),
        (
            "megatron",
            {"offload_layers": 2, "offload_modules": ("core_attn",)},
            "it moves those of all: offload_layers=4",
        ),
        ("megatron", {"offload_layers": 4, "offload_modules": ("mlp",)}, "no name of its own"),
        ("torchtitan", {"offload_layers": 2}, "no switch that moves activations"),
        ("torchtitan", {"recompute_layers": 2}, "no switch that recomputes some layers"),
        (
            "megatron",
            {"recompute": Recompute.SELECTIVE, "recompute_layers": 2},
            "beside selective recomputation of the other layers",
        ),
    ],
)
def test_rules(gpt3: Scenario, target: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=f"^{target} cannot run .*{message}"):
        export_plan(gpt3, planned(gpt3, **changes), target)


@pytest.mark.parametrize("target", ["torchtitan", "deepspeed", "accelerate"])
def test_targets_that_copy_no_key_value_heads(target: str) -> None:
    scenario = load_scenario(LLAMA)
    assert isinstance(scenario.model, TransformerSpec)
    spec = replace(scenario.model, num_key_value_heads=2)
    job = replace(scenario.job, model=build_transformer(spec), software=software("generic"))
    grouped = replace(scenario, model=spec, job=job)
    sizes: dict[str, Any] = {"dp_replicate": 1, "dp_shard": 2, "zero_stage": 3, "cp": 1}
    plan = planned(grouped, tp=4, pp=1, v=1, schedule="1f1b", sequence_parallel=True, **sizes)
    with pytest.raises(PlanError, match=r"tp=4 is more than num_key_value_heads=2, .* at most 2"):
        export_plan(grouped, plan, target)
    assert "--num-query-groups 2" in export_plan(grouped, plan, "megatron")
    assert export_plan(grouped, replace(plan, tp=2, dp_shard=4), target)


def test_models_that_are_no_transformers() -> None:
    """No plan makes them one, so none is advised; their samples have no tokens."""
    images = load_scenario(ROOT / "scenarios" / "resnet50-dgx-1v.yaml")
    for target in ("megatron", "torchtitan"):
        with pytest.raises(PlanError, match=r"trains transformers; resnet50 is none$"):
            export_plan(images, images.fixed_plan(), target)
    text = export_plan(images, images.fixed_plan(), "deepspeed")
    assert f"global batch {images.fixed_plan().global_batch_size} samples; written" in text


def test_experts_borrow_ranks() -> None:
    mixture = load_scenario(MIXTURE)
    plan = planned(mixture, tp=1, sequence_parallel=False, ep=16, dp_shard=8, zero_stage=3)
    with pytest.raises(PlanError, match="ep=16 does not divide dp_shard x cp x tp = 8"):
        export_plan(mixture, replace(plan, pp=1, dp_replicate=1, etp=1), "torchtitan")


def test_an_unknown_target(gpt3: Scenario) -> None:
    with pytest.raises(InputError, match=r"unknown target 'nemo'; allowed: megatron, "):
        export_plan(gpt3, gpt3.fixed_plan(), "nemo")
    assert set(TARGETS) == {
        *("megatron", "megatron-bridge", "torchtitan", "torchtitan-0.2", "deepspeed", "accelerate"),
        *("torchrun", "sbatch", "csv"),
    }
