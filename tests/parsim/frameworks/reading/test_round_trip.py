"""Jobs that Megatron-LM's export writes and the import reads have the same step and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.scenario import load_scenario
from tests.commands import GPT3
from tests.parsim.frameworks.reading.round_trips import notes_of_the_same_job_read

BATCH = "training.global_batch_size"
SAID: tuple[dict[str, str], ...] = (
    {"training.optimizer": "sgd", "training.clip": "0"},
    {"training.optimizer": "sgd_momentum", "training.clip": "0.5"},
    {"model.fused_attention": "false", "model.dropout": "true"},
    {"model.window": "128"},
    {"model.window": "128", "model.full_every": "2"},
    {"model.window": "128", "model.full_every": "3", "training.precision": "fp16"},
    {"model.rms_norm": "true", "model.gated_mlp": "true", "model.qk_norm": "true"},
    {"model.qkv_bias": "true", "model.mlp_bias": "false", "model.projection_bias": "false"},
    {"model.tied_embeddings": "false", "model.norm_epsilon": "1e-6"},
    {"model.num_key_value_heads": "8", "model.head_dim": "64", "model.ffn_hidden_size": "8192"},
    {"model.rope": "true", "model.rope_theta": "500000", "model.positions": "0"},
    {"model.predicted_tokens": "1", "training.precision": "fp8", "cluster.system": "dgx-h100"},
    {
        "training.precision": "fp8",
        "software": "{name: megatron-lm, fp8_scales: current}",
        "cluster.system": "dgx-h100",
    },
    {"training.precision": "nvfp4", "cluster.system": "dgx-b200"},
    {"training.precision": "mxfp4", "cluster.system": "mi355x-node"},
    {"model.num_experts": "8", "model.experts_per_token": "2", "plan.ep": "2"},
    {"plan.optimizer_offload": "true"},
    {"plan.zero_stage": "2"},
    {"plan.zero_stage": "3"},
    {"plan.pp": "2", "plan.rank_order": "[dp_replicate, dp_shard, pp, cp, tp]"},
    {"model.num_experts": "8", "model.experts_per_token": "2", "model.dense_layers": "1"},
)


@pytest.mark.parametrize("changes", SAID, ids=str)
def test_a_job_that_was_exported_is_the_same_when_read(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    """Every field of a model and of training that Megatron has a flag for."""
    sizes = {"name": "gpt-1.7b", "num_layers": 8, "seq_len": 1024}
    small = {
        "model": sizes,
        "software": "megatron-lm",
        "cluster.nodes": 1,
        "training.global_batch_size": 16,
    }
    plan = {"zero_stage": 1, "microbatch_size": 1, **({"ep": 2} if "plan.ep" in changes else {})}
    if "model.num_experts" in changes:
        small["model"] = {**sizes, "expert_ffn_hidden_size": 1024}
    given = {name: value for name, value in changes.items() if name != "plan.ep"}
    scenario = load_scenario(GPT3, {**small, BATCH: 16, "plan": plan, **given})
    notes = notes_of_the_same_job_read(scenario, "megatron", tmp_path / "train.sh")
    assert not [note for note in notes if not note.startswith("left out")]
